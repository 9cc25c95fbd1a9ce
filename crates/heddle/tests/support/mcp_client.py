"""Drives `heddle mcp` with the official Python SDK: one JSON request a line in, one JSON answer a line out.

argv: client name, working folder, then the server's command. The server's environment is this one.
"""
import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client


async def main() -> None:
    name, folder, command, *arguments = sys.argv[1:]
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ), cwd=folder)
    async with stdio_client(server) as (read, write):
        info = types.Implementation(name=name, version="1")
        async with ClientSession(read, write, client_info=info) as session:
            hello = await session.initialize()
            say(json.loads(hello.model_dump_json(by_alias=True)))
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                asked = json.loads(line)
                if asked == "list":
                    tools = await session.list_tools()
                    say(json.loads(tools.model_dump_json(by_alias=True, exclude_none=True)))
                    continue
                try:
                    result = await session.call_tool(asked["tool"], asked["arguments"])
                    text = "".join(part.text for part in result.content)
                    say({"is_error": bool(json.loads(result.model_dump_json(by_alias=True)).get("isError")), "text": text})
                except Exception as error:  # the protocol's own refusals
                    say({"refused": str(error)})


def say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


asyncio.run(main())
