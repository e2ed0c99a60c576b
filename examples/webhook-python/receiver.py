"""A policy for agentd as an HTTP endpoint, with nothing but the standard library:
WEBHOOK_SECRET=whsec_... python3 receiver.py [PORT]"""
import base64, hashlib, hmac, json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"), validate=True)


def decide(question):
    """The policy. It may be asked the same again if agentd does not hear the answer:
    who counts, or has other effects, does so once per id."""
    call = question["input"].get("call", {})
    if question["type"] == "agentd.gate.BeforeToolCall" and call["name"] == "memory_clear":
        return {"action": "block", "reason": {"code": "no_clearing", "text": "Nobody clears the memory here."}}
    return {"action": "continue"}


def signed(headers, body):
    """Whether one of the signatures is made with KEY, not long ago."""
    at = headers.get("webhook-timestamp", "")
    if not at.isascii() or not at.isdigit() or abs(time.time() - int(at)) > 300:
        return False
    mac = hmac.new(KEY, b"%s.%s." % (headers.get("webhook-id", "").encode(), at.encode()) + body, hashlib.sha256)
    want = b"v1," + base64.b64encode(mac.digest())
    # All of them, so that the time tells nothing of which.
    return any([hmac.compare_digest(one.encode(), want) for one in headers.get("webhook-signature", "").split()])


class Gate(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps the connection for the next question
    disable_nagle_algorithm = True

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length) if 0 <= length <= 16 << 20 else b""
        if not signed(self.headers, body):
            self.close_connection = True
            return self.send_error(401)
        question = json.loads(body)  # it is agentd's
        answer = {"id": question["id"], **decide(question)}
        print(question["id"], question["input"].get("call", {}).get("name"), answer["action"], flush=True)
        reply = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int((sys.argv[1:] or ["8787"])[0])), Gate)
    print(f"listening on http://127.0.0.1:{server.server_port}/gate", flush=True)
    server.serve_forever()
