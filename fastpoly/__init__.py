"""Multi-output polynomial networks and factorization machines."""
