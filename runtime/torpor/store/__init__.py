"""Where journals, snapshots and blobs are kept: one contract, one module per backend."""
