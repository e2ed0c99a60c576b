#!/usr/bin/python3
"""A plugin in Python: it lets the model remember everything but one thing.

It needs gRPC and openssl (Debian: apt-get install python3-grpcio openssl). The messages
come from agentd_plugin_v1.txtpb, the protocol's descriptors as text, so there is no
generated code; protoc and its gRPC plugin make some from hooks/plugin/proto.
"""
import base64
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

FORBIDDEN = "name"

# The messages.
files = text_format.Parse(
    pathlib.Path(__file__).with_name("agentd_plugin_v1.txtpb").read_text(), descriptor_pb2.FileDescriptorSet())
pool = descriptor_pool.DescriptorPool()
for file in files.file:
    pool.Add(file)
service = pool.FindServiceByName("agentd.plugin.v1.PluginService")
class_of = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype


def message(name):
    return class_of(pool.FindMessageTypeByName("agentd.plugin.v1." + name))


BLOCK, CONTINUE = 6, 1  # Action
BEFORE_TOOL_CALL, MUTATE = 7, 1  # Gate, Phase


def bootstrap(request, context):
    answer = message("BootstrapResponse")(id="python-policy", version="1", sdk="python")
    answer.subscriptions.add(gate=BEFORE_TOOL_CALL, phase=MUTATE, tools=["memory_write"])
    return answer


def evaluate(request, context):
    # An exception is a check that could not be made, which is no yes.
    key = json.loads(request.before_tool_call.call.arguments).get("key")
    answer = message("EvaluateResponse")()
    answer.verdict.action = BLOCK if key == FORBIDDEN else CONTINUE
    if key == FORBIDDEN:
        answer.verdict.reason.code = "forbidden_key"
        answer.verdict.reason.text = f"Nothing may be remembered under the key {FORBIDDEN}."
    return answer


def health(request, context):
    return message("HealthResponse")(ready=True)


def drain(request, context):
    return message("DrainResponse")()  # no call takes longer than to answer it


def notify(request, context):
    return message("NotifyResponse")()


def certificate(directory):
    """A certificate for this process alone: agentd takes no other, and no other host's."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return key.read_bytes(), cert.read_bytes()


def leave_with(parent, server):
    """Ends the process when the host is gone."""
    while os.getppid() == parent:
        time.sleep(0.25)
    os._exit(1)


def main():
    if os.environ.get("AGENTD_PLUGIN") != "agentd.plugin.v1":
        sys.exit("this program is a plugin: put it into agentd's plugin directory, and agentd starts it")
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=[("grpc.max_receive_message_length", 64 << 20)])
    calls = {"Bootstrap": bootstrap, "Evaluate": evaluate, "Health": health, "Drain": drain, "Notify": notify}
    handlers = {}
    for name, call in calls.items():
        method = service.methods_by_name[name]
        handlers[name] = grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=class_of(method.input_type).FromString,
            response_serializer=lambda answer: answer.SerializeToString())
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service.full_name, handlers)])

    # agentd connects to nothing that is not in this very directory.
    directory = pathlib.Path(os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.mkdtemp())
    path, shown, credentials = directory / "socket", "", None
    client = os.environ.get("PLUGIN_CLIENT_CERT")
    if client:
        key, cert = certificate(directory)
        credentials = grpc.ssl_server_credentials([(key, cert)], root_certificates=client.encode(), require_client_auth=True)
        server.add_secure_port(f"unix:{path}", credentials)
        shown = base64.b64encode(ssl.PEM_cert_to_DER_cert(cert.decode())).decode().rstrip("=")
    else:
        server.add_insecure_port(f"unix:{path}")
    server.start()
    threading.Thread(target=leave_with, args=(os.getppid(), server), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(5))
    print(f"1|1|unix|{path}|grpc|{shown}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
