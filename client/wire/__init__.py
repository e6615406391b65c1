"""Generated code of the three services; see the .proto files beside it."""
