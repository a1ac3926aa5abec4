"""Connects to an MCP server with the client of FastMCP as its documentation does, and calls its tools: as mcp_client.py.

The client opens a browser, which is a line of output here, and waits for it at an address of its own.
"""

import json
import os
import webbrowser

import anyio
from fastmcp import Client


class Line(webbrowser.BaseBrowser):
    def open(self, url, new=0, autoraise=True):
        print(url, flush=True)
        return True


webbrowser.register("line", None, Line(), preferred=True)


async def main():
    async with Client(os.environ["RESOURCE"], auth="oauth") as client:
        known = await client.call_tool("whoami", {})
        added = await client.call_tool("add_note", {"text": "Milk"})
        print(json.dumps([json.loads(result.content[0].text) for result in (known, added)]), flush=True)


anyio.run(main)
