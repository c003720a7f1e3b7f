"""Proves or refutes the eight properties of docs/trace.md over traces of any size: docs/design/pipeline.md says how."""
