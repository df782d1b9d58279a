"""A node that runs an example of the key-value service, and lines to it."""

import http.client
import json
import re
import subprocess
import threading
import urllib.parse


class Line:
    """A connection. Not to be shared by threads."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, kind, method, key, body, durability="durable"):
        """Status, media type and body; of an error the code and the text. A refusal may close the connection."""
        target = "shard=0" if key is None else "key=" + urllib.parse.quote_from_bytes(key)
        # A query has nothing to make durable.
        durable = f"&durability={durability}" if kind == "call" else ""
        self.connection.request("POST", f"/v1/{kind}/{method}?{target}{durable}", body)
        reply = self.connection.getresponse()
        text = reply.read()
        if reply.status >= 400:
            self.connection.close()
        if reply.status == 200:
            return reply.status, reply.getheader("content-type"), text
        problem = json.loads(text) if text else {}
        return reply.status, problem.get("code"), "" if method == "scan" else problem.get("detail")


class Node:
    """`quarry serve` with one shard."""

    def __init__(self, quarry, store, *options):
        command = [quarry, "serve", "--store", store, "--shards", "1", "--listen", "127.0.0.1:0", "--log-level", "error"]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                # Nobody reads on, and the pipe must not fill.
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        raise SystemExit(f"{' '.join(command)} {' '.join(options)} is not served:\n{''.join(said)}")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def line(self):
        return Line(self.port)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
