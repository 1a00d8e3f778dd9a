"""A key pair for the learners of one training, made where the training is created."""

from __future__ import annotations

from airflow_learner_provider.training.ssh import SSHKey


def generate_ssh_key() -> SSHKey:
    """Generate an Ed25519 key pair."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return SSHKey(private.decode(), public.decode())
