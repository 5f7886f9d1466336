"""Sessions of TLS by Python: a client, a server in a thread, asyncio on both sides, children by fork and by exec."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading

folder, port = sys.argv[1], int(sys.argv[2])
client = ssl.create_default_context(cafile=f"{folder}/ca.pem")
server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
server.load_cert_chain(f"{folder}/localhost.pem", f"{folder}/localhost.key")


def ask(port):
    """The answer of a server, and what was agreed on."""
    with socket.create_connection(("localhost", port)) as plain:
        with client.wrap_socket(plain, server_hostname="localhost") as tls:
            tls.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while piece := tls.recv(4096):
                answer += piece
            subject = tls.getpeercert()["subjectAltName"]
            return answer, tls.version(), tls.cipher(), subject


def serve(listener, times):
    """Answers some clients, one after the other."""
    for _ in range(times):
        plain, _ = listener.accept()
        with server.wrap_socket(plain, server_side=True) as tls:
            tls.recv(4096)
            tls.sendall(b"hello from Python")


async def asynchronous():
    """Many clients at a time of a server in the same event loop."""

    async def answer(reader, writer):
        writer.write(b"you said " + await reader.readline())
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server)
    port = listening.sockets[0].getsockname()[1]

    async def one(i):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client)
        writer.write(b"%d\n" % i)
        answered = await reader.read()
        writer.close()
        return answered

    async with listening:
        return await asyncio.gather(*(one(i) for i in range(20)))


print("client:", ask(port))
if "child" in sys.argv:
    sys.exit()
listener = socket.create_server(("127.0.0.1", 0))
thread = threading.Thread(target=serve, args=(listener, 4))
thread.start()
for _ in range(4):
    print("server:", ask(listener.getsockname()[1]))
thread.join()
print("asyncio:", asyncio.run(asynchronous()))
sys.stdout.flush()
child = os.fork()
if child == 0:
    # What was open before is used on both sides of the fork.
    print("forked:", ask(port), flush=True)
    os._exit(0)
print("status:", os.waitpid(child, 0)[1])
started = subprocess.run([sys.executable, *sys.argv, "child"], stdout=subprocess.PIPE, check=True)
print("started:", started.stdout)
