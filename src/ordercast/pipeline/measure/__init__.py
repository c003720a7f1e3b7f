"""Throughput, latencies, datagrams, repairs, view changes and the token's rotation of traces of any size."""
