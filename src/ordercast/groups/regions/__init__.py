"""Groups that are mapped to regions of overlap: sessions, ports and lanes above an engine of regions."""
