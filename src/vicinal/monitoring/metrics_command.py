"""`vicinal metrics`: the figures of `vicinal top` for Prometheus and other readers of OpenMetrics.

The formats and the HTTP pages are those of the library prometheus-client (`vicinal[metrics]`),
which is imported only when the command runs.
"""

import ipaddress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Annotated
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import typer

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import Durability, write_atomically
from vicinal.base.wording import in_quotes
from vicinal.monitoring.options import RegionNames, sampler_of
from vicinal.region.commands import PATIENCE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

FILE = "vicinal.prom"
"""The file's name in node_exporter's folder, which reads files with this ending."""

_OPENMETRICS = "application/openmetrics-text"
_FILE_MODE = 0o644
_REQUEST_SECONDS = 10


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(name="metrics")(metrics)


def metrics(
    region: RegionNames = None,
    textfile: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help=f"Write {FILE} into this folder of node_exporter, in one step."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Serve the metrics by HTTP on a loopback address, such as 127.0.0.1:9709, until "
            "a signal ends the command.",
        ),
    ] = None,
) -> None:
    """Print what the jobs on this host do as metrics in the format OpenMetrics.

    The figures are those of `vicinal top`, by region and job. With --textfile they go to a file
    instead, and with --listen to readers by HTTP, with a new sample for each.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import choose_encoder

    from vicinal.monitoring.metrics import JobsCollector

    if textfile is not None and listen is not None:
        raise VicinalError("--textfile and --listen exclude each other", "leave one of them out")
    address = None if listen is None else _address(listen)
    if textfile is not None and not textfile.is_dir():
        raise VicinalError(f"there is no folder {textfile}", "create it, or name another folder")
    sampler = sampler_of(region)
    registry = CollectorRegistry()
    registry.register(JobsCollector(sampler, sampler.take(patience=PATIENCE)))
    if address is not None:
        _serve(registry, *address)
    elif textfile is None:
        encode, _ = choose_encoder(_OPENMETRICS)
        typer.echo(encode(registry), nl=False)
    else:
        # node_exporter reads the older text format.
        text = generate_latest(registry)
        try:
            write_atomically(textfile / FILE, text, Durability.NONE, mode=_FILE_MODE)
        except OSError as error:
            raise VicinalError(
                f"cannot write {textfile / FILE}: {describe_os_error(error)}",
                "name a folder that this user may write to",
            ) from error


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        colon = ""
    if not colon or not 0 <= number <= 0xFFFF:
        raise VicinalError(
            f"{in_quotes(text)} is not an address and a port", "write it like 127.0.0.1:9709"
        )
    if not address.is_loopback:
        # There is no login and no encryption.
        raise VicinalError(
            f"{address} is not a loopback address, and metrics are for this host only",
            "listen at 127.0.0.1, and let a proxy or node_exporter pass the metrics on",
        )
    return str(address), number


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each reader in a thread of its own."""

    daemon_threads = True


class _Handler(WSGIRequestHandler):
    """Writes no log, and waits no longer for a silent reader."""

    timeout = _REQUEST_SECONDS

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _serve(registry: "CollectorRegistry", host: str, port: int) -> None:
    """Answer readers until a signal comes."""
    import socket

    from prometheus_client import make_wsgi_app

    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = make_server(host, port, make_wsgi_app(registry), Server, _Handler)
    except OSError as error:
        raise VicinalError(
            f"cannot listen at {host}, port {port}: {describe_os_error(error)}",
            "choose another port",
        ) from error
    with server:
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"vicinal: metrics at http://{shown}:{server.server_port}/metrics", err=True)
        server.serve_forever()
