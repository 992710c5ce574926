"""Messages between farm processes: JSON over sockets. No pickle, so a worker's bytes are data."""

from __future__ import annotations

import json
import socket
from multiprocessing.connection import Connection
from typing import Any

Message = dict[str, Any]

MAX_CONTROL = 65536  # one control message; work itself goes over Connections of any length


def send(connection: Connection, message: Message) -> None:
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> Message:
    """Raises EOFError when the other side is gone."""
    message: Message = json.loads(connection.recv_bytes())
    return message


def send_control(control: socket.socket, message: Message, fds: list[int] | None = None) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(control, [data], fds or [])


def receive_control(control: socket.socket) -> tuple[Message, list[int]]:
    """One message of a SOCK_SEQPACKET socket, with the file descriptors sent along."""
    data, fds, _, _ = socket.recv_fds(control, MAX_CONTROL, 1)
    if not data:
        raise EOFError("the other side closed the control socket")
    message: Message = json.loads(data)
    return message, list(fds)
