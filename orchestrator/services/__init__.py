"""gRPC services: wire to domain and back."""
