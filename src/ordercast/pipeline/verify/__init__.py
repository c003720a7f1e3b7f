"""Proves or refutes the eight properties of TRACE.md over traces of any size: docs/design/pipeline.md says how."""
