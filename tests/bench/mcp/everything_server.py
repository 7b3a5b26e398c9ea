"""The server that the conformance tests ask: its tools, resources and prompts are those that they name.

It speaks the HTTP of `sonata mcp --http`, at a free port, and prints its address on standard error."""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPDeprecationWarning

from app.mcp.transports import serve_http

Context = ServerRequestContext[Any]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
PICTURE = types.ImageContent(type="image", data=PNG, mime_type="image/png")
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}
USER = {"username": {"type": "string"}, "email": {"type": "string"}}


def text(said: str) -> types.TextContent:
    return types.TextContent(type="text", text=said)


def embedded(uri: str, said: str, mime: str = "text/plain") -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=mime, text=said)
    return types.EmbeddedResource(type="resource", resource=resource)


async def logged(context: Context, given: dict[str, Any]) -> list[types.ContentBlock]:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", said, related_request_id=context.request_id)
        await asyncio.sleep(0.05)
    return [text("Logged.")]


async def in_steps(context: Context, given: dict[str, Any]) -> list[types.ContentBlock]:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return [text("Done.")]


async def sampled(context: Context, given: dict[str, Any]) -> list[types.ContentBlock]:
    message = types.SamplingMessage(role="user", content=text(given["prompt"]))
    answer = await context.session.create_message([message], max_tokens=100, related_request_id=context.request_id)
    return [text(f"LLM response: {answer.content.text}")]


def elicited(properties: dict[str, Any], required: list[str]) -> Any:
    async def run(context: Context, given: dict[str, Any]) -> list[types.ContentBlock]:
        schema = {"type": "object", "properties": properties, "required": required}
        asked = given.get("message", "Please fill this in.")
        answer = await context.session.elicit(asked, schema, related_request_id=context.request_id)
        said = f"action={answer.action}, content={json.dumps(answer.content)}"
        return [text(f"Elicitation completed: {said}" if not required else f"User response: {said}")]

    return run


async def reconnected(context: Context, given: dict[str, Any]) -> list[types.ContentBlock]:
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await asyncio.sleep(0.1)
    return [text("Reconnected.")]


def told(*content: types.ContentBlock) -> Any:
    async def run(context: Context, given: dict[str, Any]) -> list[types.ContentBlock]:
        return list(content)

    return run


MIXED = (
    text("Multiple content types test:"),
    PICTURE,
    embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
)
TOOLS: dict[str, Any] = {
    "test_simple_text": told(text("This is a simple text response for testing.")),
    "test_image_content": told(PICTURE),
    "test_audio_content": told(types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")),
    "test_embedded_resource": told(embedded("test://embedded-resource", "This is an embedded resource content.")),
    "test_multiple_content_types": told(*MIXED),
    "test_tool_with_logging": logged,
    "test_error_handling": None,
    "test_tool_with_progress": in_steps,
    "test_sampling": sampled,
    "test_elicitation": elicited(USER, ["username", "email"]),
    "json_schema_2020_12_tool": told(text("Fine.")),
    "test_elicitation_sep1034_defaults": elicited(DEFAULTS, []),
    "test_elicitation_sep1330_enums": elicited(ENUMS, []),
    "test_reconnection": reconnected,
}
PARAMETERS = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "json_schema_2020_12_tool": SCHEMA_2020,
}
PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}
STATIC = "This is the content of the static text resource."


async def list_tools(context: Context, given: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, description=f"For {name}.", input_schema=PARAMETERS.get(name, NOTHING))
            for name in TOOLS
        ]
    )


async def call_tool(context: Context, given: types.CallToolRequestParams) -> types.CallToolResult:
    run = TOOLS[given.name]
    if run is None:
        said = "This tool intentionally returns an error for testing"
        return types.CallToolResult(content=[text(said)], is_error=True)
    return types.CallToolResult(content=await run(context, given.arguments or {}))


async def list_resources(context: Context, given: Any) -> types.ListResourcesResult:
    forms = (("test://static-text", "text/plain"), ("test://static-binary", "image/png"))
    return types.ListResourcesResult(
        resources=[types.Resource(uri=uri, name=uri, description=uri, mime_type=mime) for uri, mime in forms]
    )


async def list_templates(context: Context, given: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(name="data", uri_template="test://template/{id}/data", description="Data.")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Context, given: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = given.uri
    if uri == "test://static-binary":
        return types.ReadResourceResult(contents=[types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)])
    found = re.fullmatch(r"test://template/(\w+)/data", uri)
    data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"} if found else None
    content = types.TextResourceContents(
        uri=uri, mime_type="application/json" if data else "text/plain", text=json.dumps(data) if data else STATIC
    )
    return types.ReadResourceResult(contents=[content])


async def accept(context: Context, given: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def list_prompts(context: Context, given: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name, description=f"For {name}.",
                arguments=[types.PromptArgument(name=one, description=one, required=True) for one in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
    )  # fmt: skip


async def get_prompt(context: Context, given: types.GetPromptRequestParams) -> types.GetPromptResult:
    words = given.arguments or {}
    content: list[types.ContentBlock] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{words.get('arg1')}', arg2='{words.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            embedded(words.get("resourceUri", ""), "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [PICTURE, text("Please analyze the image above.")],
    }[given.name]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in content])


async def complete(context: Context, given: types.CompleteRequestParams) -> types.CompleteResult:
    found = [word for word in ("paris", "park", "party") if word.startswith(given.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=found, total=len(found), has_more=False))


def everything() -> Server[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)  # the tests are those of the versions of 2025
        return Server(
            "everything", version="1", on_list_tools=list_tools, on_call_tool=call_tool,
            on_list_resources=list_resources, on_list_resource_templates=list_templates,
            on_read_resource=read_resource, on_subscribe_resource=accept, on_unsubscribe_resource=accept,
            on_list_prompts=list_prompts, on_get_prompt=get_prompt, on_completion=complete,
            on_set_logging_level=accept,
        )  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(serve_http(everything(), 0))
