"""The cluster's certificates, made anew for each run."""

import base64
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dev.cluster import settings

_LIFETIME = dt.timedelta(days=365)
# Names a pod or the host may call the API server by.
_API_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    f"kubernetes.default.svc.{settings.CLUSTER_DOMAIN}",
    settings.LOOPBACK,
    settings.API_SERVICE_ADDRESS,
    settings.BRIDGE_ADDRESS,
)


@dataclass(frozen=True)
class _Identity:
    """A certificate's file name, its subject, and the names a server answers to."""

    file: str
    user: str
    group: str | None = None
    names: tuple[str, ...] = ()


# The users that Kubernetes' own RBAC rules know.
_IDENTITIES = (
    _Identity("apiserver", "kube-apiserver", names=_API_NAMES),
    _Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
    _Identity("kubelet-server", settings.NODE, names=(settings.NODE, settings.LOOPBACK)),
    _Identity("admin", "kubernetes-admin", "system:masters"),
    _Identity(
        "kube-controller-manager", "system:kube-controller-manager", names=(settings.LOOPBACK,)
    ),
    _Identity("kube-scheduler", "system:kube-scheduler", names=(settings.LOOPBACK,)),
    _Identity("kubelet", f"system:node:{settings.NODE}", "system:nodes"),
    _Identity("coredns", "coredns", "system:masters"),  # it reads what few roles may
)
KUBECONFIG_USERS = ("kube-controller-manager", "kube-scheduler", "kubelet", "coredns")


def write_certificates() -> None:
    """Write the authority, a certificate for each part, and the kubeconfigs that use them."""
    settings.PKI.mkdir(parents=True, mode=0o700)
    authority = _Authority()
    (settings.PKI / "ca.crt").write_bytes(authority.certificate_pem)
    for identity in _IDENTITIES:
        authority.issue(identity)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(settings.PKI / "service-accounts.key", key)
    for user in KUBECONFIG_USERS:
        write_kubeconfig(settings.PKI / f"{user}.kubeconfig", user)


def write_kubeconfig(path: Path, user: str) -> None:
    """Write a kubeconfig with everything in it, so that it works wherever it is copied to."""

    def read(file: str) -> str:
        return base64.b64encode((settings.PKI / file).read_bytes()).decode()

    cluster = {"server": settings.API_URL, "certificate-authority-data": read("ca.crt")}
    credentials = {
        "client-certificate-data": read(f"{user}.crt"),
        "client-key-data": read(f"{user}.key"),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": settings.NAME,
        "contexts": [{"name": settings.NAME, "context": {"cluster": settings.NAME, "user": user}}],
        "clusters": [{"name": settings.NAME, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
    }
    part = path.with_name(f".{path.name}")
    part.touch(mode=0o600)
    part.write_text(yaml.safe_dump(content))
    part.replace(path)


class _Authority:
    """The certificate authority; its key exists only while the others are issued."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _build_name(settings.NAME)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._build(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, identity: _Identity) -> None:
        """Write a key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._build(_build_name(identity.user, identity.group), key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if identity.names:
            names = [_build_alternative_name(name) for name in identity.names]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (settings.PKI / f"{identity.file}.crt").write_bytes(pem)
        _write_key(settings.PKI / f"{identity.file}.key", key)

    def _build(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))  # clocks may be set back a bit
            .not_valid_after(now + _LIFETIME)
        )


def _build_name(user: str, group: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _build_alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)
