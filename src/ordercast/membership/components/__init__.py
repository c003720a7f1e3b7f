"""Components: every part that a failure leaves goes on, and parts merge (extended virtual synchrony)."""
