"""What the disciplines with one contiguous log are composed of: sequencer, token and timestamp."""
