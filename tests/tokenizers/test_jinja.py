"""The renderer gives the same text as jinja2 with the settings of transformers.

chat_templates/ has templates that were written for these tests in the manner of the families: the features of published
ones, in fewer words. tests/bench/engine/chat_templates.py compares any folder of published ones.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.models.template_renderer import native_renderer
from py_core.formats.gguf import parse_header
from py_core.tokenizers.template_renderer import MAX_SECONDS, TemplateError, decode_text, encode_request
from tests.tokenizers.jinja_reference import reference

FAMILIES = sorted((Path(__file__).parent / "chat_templates").glob("*.jinja"))


def rendered(source: str, variables: dict[str, Any]) -> str:
    request = encode_request(source, variables)
    return decode_text(asyncio.run(native_renderer().run(request, False, MAX_SECONDS)))


def said(render: Any, source: str, variables: dict[str, Any]) -> str | None:
    """The text, or None if the template refuses the conversation."""
    try:
        return render(source, variables)
    except Exception:
        return None


# --- families -------------------------------------------------------------------------------------------------------

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, e.g. 'Zürich' <b>", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string"}, "days": {"type": "integer", "default": 3, "exact": True, "unit": None},
        }}}}]  # fmt: skip
SYSTEM = {"role": "system", "content": " Be \u201ckind\u201d & brief.\n"}
QUESTION = {"role": "user", "content": "  Is 2<3?  \n"}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nIt's true. "}
NEXT = {"role": "user", "content": "Größe? 日本 😀 \ud83d {{ x }}"}
ARGUMENTS = {"city": "Zürich", "days": 2, "exact": False, "unit": None, "limit": 1.5, "list": ["it's", 1e-7]}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}]}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": '{"t": 21}'}
CHATS: dict[str, dict[str, Any]] = {
    "a question": {"messages": [QUESTION]},
    "a system message": {"messages": [SYSTEM, QUESTION]},
    "an empty system message": {"messages": [{"role": "system", "content": ""}, QUESTION]},
    "turns": {"messages": [SYSTEM, QUESTION, ANSWER, NEXT]},
    "no system message": {"messages": [QUESTION, ANSWER, NEXT, ANSWER, QUESTION]},
    "no prompt for an answer": {"messages": [QUESTION, ANSWER], "add_generation_prompt": False},
    "two questions": {"messages": [QUESTION, NEXT]},
    "tools": {"messages": [SYSTEM, QUESTION], "tools": TOOLS},
    "a call": {"messages": [QUESTION, CALL, RESULT], "tools": TOOLS},
    "calls and turns": {
        "messages": [SYSTEM, QUESTION, CALL, RESULT, ANSWER, NEXT, CALL, RESULT, RESULT],
        "tools": TOOLS,
    },
    "built-in tools": {"messages": [QUESTION, CALL], "builtin_tools": ["get_weather", "code_interpreter"]},
    "tools in the system message": {"messages": [{**SYSTEM, "tools": json.dumps(TOOLS)}, QUESTION]},
    "thinking": {"messages": [SYSTEM, QUESTION, ANSWER, NEXT], "enable_thinking": True},
    "not thinking": {"messages": [SYSTEM, QUESTION, ANSWER, NEXT], "enable_thinking": False},
    "not thinking, by a message": {"messages": [{"role": "system", "content": "Go. /no_think"}, QUESTION]},
    "a thought of its own": {"messages": [QUESTION, {**ANSWER, "content": "4", "reasoning_content": "\nhm\n"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " Hi "}]}]},
}


@pytest.mark.parametrize("path", FAMILIES, ids=[path.stem for path in FAMILIES])
def test_each_family_is_rendered_as_transformers_does(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    texts = {}
    for name, chat in CHATS.items():
        variables = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", **chat}
        texts[name] = said(reference, source, variables)
        assert said(rendered, source, variables) == texts[name], name
    assert sum(text is not None for text in texts.values()) >= 6


def test_the_models_own_template_is_rendered_as_transformers_does(model_path: Path) -> None:
    with model_path.open("rb") as file:
        source = parse_header(file.read(2 << 20)).metadata["tokenizer.chat_template"]
    for chat in CHATS.values():
        variables = {"add_generation_prompt": True, **chat}
        assert said(rendered, source, variables) == said(reference, source, variables)


# --- the language ---------------------------------------------------------------------------------------------------

# fmt: off
RENDERED = [
    '{% set c=0 %}{% for i in [1,2,3] %}{% set c=c+1 %}{{c}}{% endfor %}{{c}}',
    '{% for i in [1,2] %}{% if i==1 %}{% set x=5 %}{% endif %}{{x}}.{% endfor %}',
    '{{ 1 if false }}|{{ [1,2][5] }}|{{ {}.a }}',
    "{% for a,b in {'x':1}.items() %}{{a}}{{b}}{{loop.index}}{% endfor %}",
    "{% set x = [[1, [2, 3]], 4] %}{{ x.0.1 }}{{ x.0.1.0 }}{{ x.0.1.1 + 1.5 }}{{ x.1 }}{{ x.0.1[0] }}{{ x.0x0.0 }}",
    "{{ 'a' 'b' }}{{ (1,) }}{{ [none,true,1.0,1e20,1e16,1e-5,'it\\'s'] }}",
    "{{ 'x' is sequence }}{{ 'x' is iterable }}{{ {} is sequence }}{{ range(3) }} {{ range(3)|list }}",
    '{% macro f(a,b=2) %}{{a}}{{b}}{{varargs}}{{kwargs}}{% endmacro %}{{ f(1) }}|{{ f(1,3,4,x=5) }}',
    '{{ 3 is divisibleby 3 }}{{ not 1 is none }}{{ 1 in [1] and 2 not in [1] }}',
    'a\n  {% if true %}\n  b\n  {% endif %}\n c {# x #}\n d{{ 1 }}\n e\n\n',
    '{%- if true -%}  x  {%+ endif +%}\n y',
    "{{ messages|map(attribute='a')|list }}",
    "{{ 'a,b'.split(',') }} {{ namespace(a=1) }} {{ dict(a=1) }}",
    '{% set ns = namespace() %}{{ ns.q is defined }}',
    "{{ 'A' if x else 'B' if y else 'C' }}",
    '{{ 1,2 }}',
    "{{ 10/2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ -7 // 2 }} {{ '%s-%d' % ('a', 3) }} {{ 'a'*3 }} {{ true + 1 }}",
    '{{ 1 < 2 < 3 }}',
    '{% filter upper %}a{{ 1 }}b{% endfilter %}{% set x %}q{{ 1 }}{% endset %}{{ x }}{% set y | upper %}'
    'q{% endset %}{{ y }}',
    '{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}hey{% endcall %}',
    '{% for x in [3,1,2] if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }}{{loop.length}};{% else %}none{% endfor %}',
    "{{ 'a\\u00e9\\x41\\101' }}",
    '{{ 1_000 + 0x10 }}',
    '{{ messages[0] }}',
    "{{ ''|default('d') }}{{ ''|default('d', true) }}{{ none|default('q') }}",
    "{{ [3,1]|sort }}{{ ['b','A']|sort }}{{ [1,2]|sum }}{{ [[1,2],[3]]|sum(start=[]) }}",
    "{{ 'x\ny'|indent }}|{{ 'x\n\ny'|indent(2,true) }}|{{ 1|string ~ none }}",
    "{{ 'hello wORLD it\\'s'|title }} {{ 'hello wORLD it\\'s'.title() }} {{ 'aBC'|capitalize }}",
    "{{ 1.5|round }} {{ 2.5|round }} {{ 1.25|round(1) }} {{ 3|round }} {{ 2.7|int }} {{ 'x'|int(7) }} "
    "{{ '3.9'|int }} {{ '12'|float }}",
    "{{ {'b':1,'a':2}|dictsort }} {{ 'abc'|first }} {{ 'abc'|last }} {{ []|first }} {{ 'abc'|reverse }} "
    '{{ [1,2]|reverse|list }}',
    "{{ 'a'|list }} {{ [1,1,2]|unique|list }} {{ ['a','B']|join('-')|upper }} {{ [{'k':1}]|join(',',attribute='k') }}",
    "{{ [1,2,3]|select('odd')|list }} {{ [1,none]|reject('none')|list }} "
    "{{ [{'a':1},{'b':2}]|selectattr('a','defined')|list }} {{ [1,2]|map('string')|list }}",
    "{{ 'a'.join(['x','y']) }}{{ 'a-b'.partition('-') }}{{ [1,2].index(2) }}",
    "{{ (1,2)+(3,) }} {{ [1]+[2] }} {{ 'a' in {'a':1} }} {{ 'b' in 'abc' }}",
    "{{ x ~ 1 }} {{ x == y }} {{ x|length }} {{ 'q' in x }}",
    '{{ 1.0 == 1 }} {{ true == 1 }} {{ 1 is sameas true }} {{ none is none }}',
    "{{ {'a':1,'b':[1,2,{'c':'d'}]}|tojson }}",
    '{%- for i in range(2) -%}{{i}}{%- endfor %}\n{%- set a,b=1,2 %}{{a}}{{b}}',
    '{{ "it\'s\\"" ~ [\'it\\\'s\',\'"\',\'\\n\\t\\\\é\\x01\\u200b😀\'] }}',
    "{{ 'straße ΑΣ'.upper() }} {{ 'ΑΣ ΟΔΟΣ ÄÖ'.lower() }} {{ 'abc éa'.title() }} {{ 'éA'.swapcase() }} "
    "{{'éX'|capitalize}}",
    "{{ 'a  b c '.split() }} {{ ' a b  c d '.split(none, 1) }} {{ ' a b  c d '.rsplit(none, 1) }} "
    "{{ 'a,b,c'.rsplit(',',1) }} {{ 'a,b,c'.split(',',1) }}{{ ''.split() }}{{ ''.split(',') }}",
    "{{ 'a\nb\r\nc\n'.splitlines() }} "
    "{{ 'abc'.center(8,'*') }}|{{ 'ab'.center(5) }}|{{ 'x'.ljust(3) }}|{{ 'x'.rjust(3) }}|{{ '-5'.zfill(4) }}",
    "{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'héllo'.index('l') }} "
    "{{ 'aaa'.count('a') }} {{ ''.count('') }} {{ 'abc'.replace('','-') }} {{ 'aXbX'.replace('X','y',1) }}",
    "{{ 'abc'[1] }} {{ 'äbc'[-1] }} {{ 'abc'[5] is defined }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[::2] }} "
    "{{ 'abcdef'[-2:] }} {{ [1,2,3][::-1] }} {{ [1,2,3][:-1] }} {{ [1,2,3][5:] }} {{ 'é€😀'[::-1] }}"
    '{{ range(5)[1:3] }}',
    '{{ 0.1+0.2 }} {{ 1e100 }} {{ 123456789.123 }} {{ 1e-7 }} {{ 100.0 }} {{ 1/3 }} {{ 2.5e-5 }} {{ 1e15 }} '
    '{{ 12345678901234567.0 }} {{ -0.0 }} {{ 7.0//2 }} {{ -7.5 % 2 }}',
    "{{ [1,2.5,'a',none,true,{'k':[]}]|tojson(indent=2) }}",
    "{{ {'b':1,'a':'é<>&\\u2028\x7f'}|tojson(sort_keys=true) }} {{ 'é😀'|tojson(ensure_ascii=true) }} "
    "{{ [1,2]|tojson(separators=(',',':')) }}{{ {}|tojson(indent=2) }}{{ {1:2,none:3,1.5:2}|tojson }}",
    "{% for a in [1,2,3] %}{{ loop.cycle('x','y') }}{{ loop.changed(a//2) }}{{ loop.revindex }}"
    '{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}',
    '{% for i in range(5) %}{% if i==1 %}{% continue %}{% endif %}{% if i==3 %}{% break %}{% endif %}{{i}}{% endfor %}',
    '{% for i in [[1,[2]],[3]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}'
    '{{ i }}@{{ loop.depth }}{% endif %}{% endfor %}',
    "{% set ns=namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns['a'] }}",
    "{% macro m(x, y='d') %}{{ x }}{{ y }}{{ caller() if caller is defined else '' }}{% endmacro %}"
    "{{ m('q') }}{% call m(1, y=2) %}C{% endcall %}",
    '{% macro f(n) %}{% if n %}{{ n }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }}',
    '{% raw %}{{ x }}{% y %}{% endraw %}\n{%- raw -%}  a {%- endraw -%}  b',
    '{#- c -#} a {#+ x +#}\nb\n  {# only #}\nc',
    "{{- ' a' -}}   b   {{ 1 }}  \n",
    '  {%- if 1 %}\n  x\n  {%- endif %}\n\n y',
    '{% if 1 -%}\n\n  z{%- endif %}  ',
    '{%+ if 1 %}\n a{%+ endif +%}\n b',
    '\n\n{{1}}\n\n',
    'a{% if 1 %} b {% endif %} c\n   {{ 2 }}\n   {% set x = 1 %}   \nd',
    "{{ '%s %r %d%%' % ('a','b',3) }} {{ '%s' % 5 }} {{ '%s-%s'|format(1,none) }} "
    "{{ '{} {0}'.format(1) if false else '{} {}'.format(1,'b') }} {{ '{a}{{}}'.format(a=2) }}",
    "{{ 3 in [1,2] or 'x' }} {{ 0 or none }} {{ '' and 1 }} {{ not '' }} {{ 1 == 1.0 != 2 }}",
    "{{ {'a':{'b':[1,{'c':2}]}}.a.b[1].c }} {{ {'items':5}['items'] }} {{ {'x':1}.get('y','z') }} "
    "{{ {'x':1}.get('y') }} {{ {'a':1}.keys()|list }} {{ {'a':2}.values()|list }}",
    "{{ messages[0].get('a') }}{{ messages[-1]['a'] }}{{ messages|length }}{{ messages[1] is defined }}"
    "{{ messages[0].zz is undefined }}{{ (messages[0].zz or 'q') }}",
    "{{ 'a' is string }}{{ 1 is number }}{{ {} is mapping }}{{ [] is iterable }}{{ none is none }}"
    "{{ true is boolean }}{{ 1 is integer }}{{ 1.0 is float }}{{ 'x' is lower }}{{ f is callable }}"
    '{{ 2 is even }}{{ -1 is odd }}{{ 1 is eq 1 }}{{ 1 is in [1] }}{{ 1 is not in [1] }}{{ 1 is sameas 1 }}'
    '{{ true is true }}{{ 1 is true }}',
    "{{ [3,1,2]|max }}{{ ['b','a']|min }}{{ 'ab'|join('-') }}{{ {'a':1}|join }}{{ [1,2,3]|last }}"
    "{{ []|last|default('e') }}{{ '  x '|trim }}{{ 'xxaxx'|trim('x') }}{{ 'abcabc'|replace('b','X',1) }}"
    '{{ [1]|list is sequence }}',
    '{{ \'x\'|e }}{{ \'<a & "b">\'|escape }}{{ -5|abs }}{{ \'5\'|int + 1 }}'
    "{{ 'ff'|int(base=16) if false else '' }}{{ 1.7|int }}{{ none|string }}{{ [none]|string }}{{ 1|float }}",
    "{{ [{'n':'b','v':1},{'n':'A','v':2}]|sort(attribute='n')|map(attribute='v')|list }}"
    "{{ [3,1,2]|sort(reverse=true) }}{{ ['b','A','a']|sort(case_sensitive=true) }}{{ [1,2,1]|unique|list }}"
    "{{ {'b':1,'a':2}|dictsort(by='value') }}",
    "{{ [{'r':'u','c':1},{'r':'s'}]|selectattr('r','equalto','u')|list }}"
    "{{ [{'r':'u'},{'r':'s'}]|rejectattr('r','eq','u')|map(attribute='r')|join(',') }}"
    "{{ [{'r':'u'}]|selectattr('c','defined')|list|length }}{{ [1,2,3]|map('string')|join }}"
    "{{ ['a']|map('upper')|first }}",
    "{{ a.b.c if a is defined else 'no' }}{{ undefinedvar }}{{ undefinedvar|default('x') }}"
    '{{ undefinedvar is defined and undefinedvar.x }}',
    '{{ none.x }}',
    "{{ ''.__class__ }}",
    "{{ [1,2,] }}{{ {'a':1,} }}{{ (1,2,) }}{{ () }}",
    "{{ 1 if 1 else 2 if 0 else 3 }} {{ (1 if 0) is defined }} {{ ['a' if 1 else 'b', 'c'] }}",
    "{% for k, v in {'a':1,'b':2}|items %}{{k}}={{v}};{% endfor %}{% for (a, b) in [(1,2)] %}{{a}}{{b}}{% endfor %}",
    '{% with a=1, b=2 %}{{a}}{{b}}{% endwith %}{{ a is defined }}',
    '{% set x = namespace(l=[]) %}{% set x.l = x.l + [1] %}{{ x.l }}',
    "{{ dict(a=1, **{'b':2}) }}{{ dict([('a',1)]) }}{{ range(*[1,4])|list }}",
    '{{ 1 - -1 }}{{ 2 - 1 }}{{ -1|abs }}{{ 3 * -2 }}{{ not true == false }}',
    "{{ 'a' ~ 1 ~ none ~ [1] ~ true ~ 1.0 }}",
    "{{ 'x' if 'a' in 'abc' and 'd' not in 'abc' else 'y' }}",
    '{%- set x -%}  a  {%- endset -%}[{{ x }}]',
    "{% if messages[0]['a'] == 1 and not (messages[1] is defined) %}ok{% endif %}",
    '{{ \'\\n\'.join([\'a\',\'b\']) }}{{ "\\"" }}{{ \'\\\\n\' }}',
    '{{ loop is defined }}{% for a in [1] %}{% for b in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.last }}'
    '{% endfor %}',
    '{% set loop_messages = messages[1:] %}{{ loop_messages }}{{ messages[:1]|length }}',
    "{{ 'A'.islower() }}{{ 'a1'.isalnum() }}{{ '१'.isdigit() }}{{ ' '.isspace() }}{{ 'Ab Cd'.istitle() }}"
    "{{ 'é'.isascii() }}{{ 'x²'.isalnum() }}{{ '²'.isdecimal() }}",
    "{{ 'a.b'.removesuffix('.b') }}{{ 'a.b'.removeprefix('a') }}{{ 'x'.startswith(('a','x')) }}"
    "{{ 'abc'.endswith('bc') }}{{ 'abc'.startswith('') }}{{ 'a=b=c'.rpartition('=') }}"
    "{{ 'abc'.partition('x') }}",
    "{{ '\ud83d' ~ 'é\\ud83d' if false else '' }}{{ ['\u200b\xad\xa0 é\t'] }}",
    "{{ 'ab\n\n  cd'|indent(2) }}|{{ 'a\nb'|indent(first=true) }}|{{ 'a\n\nb'|indent(blank=true) }}|"
    "{{ 'a\nb'|indent('>') }}",
    '{% macro a() %}{{ varargs|length }}{% endmacro %}{{ a(1,2) }}',
    "{{ [[1,2],[3,4]]|map('first')|list }}{{ [[1,2],[3,4]]|map('join','-')|list }}"
    "{{ [1,2,3,4]|select('divisibleby',2)|list }}{{ [1,2]|sum }}{{ [{'a':1},{'a':2}]|sum(attribute='a') }}"
    "{{ [1,2,3]|reverse|list }}{{ {'a':1}|length }}",
    '{% filter upper %}a{% endfilter %}{% set x|trim|upper %} b {% endset %}{{ x }}',
    "{{ 'a'|default }}{{ none|default('x', true) }}{{ []|first is defined }}",
    "{{ {'a':1}.keys()|list }} {{ {'a':1}|items|list }} {{ {'a':1}.items()|list }}",
    "{{ 1.25|round(1) }}{{ 1.35|round(1) }}{{ 5|round }}{{ 5.5|round(method='floor') }}{{ 5.1|round(0,'ceil') }}",
]
REFUSED = [
    "{{ 'abc'[::-1] }} {{ -2**2 }} {{ 2**3**2 }} {{ 7//2*2 }} {{ 1 ~ 2 + 3 }} {{ 5 - 1 ~ 2 }}",
    '{{ x.y is defined }} {{ x is defined }}',
    '{% set a.b = 1 %}',
    "{{ {'a':1}.a.b.c }}",
    '{{ x.y }}',
    '{{ x.y.z }}',
    '{{ x + 1 }}',
    "{{ x['y'] }}",
    '{{ none + 1 }}',
    "{{ 'a' + 1 }}",
    "{{ [1] + 'a' }}",
    '{{ f() }}',
    "{{ 'a'() }}",
    '{{ 1/0 }}',
    '{% for x in 5 %}{% endfor %}',
    '{% for x in none %}{% endfor %}',
    "{{ 'a' < 1 }}",
    '{% set a, b = [1] %}',
    '{{ messages.append(1) }}',
    "{{ messages[0].update({'a':2}) }}",
    "{{ 'x'|nofilter }}",
    '{{ 1 is notest }}',
    '{% foo %}',
    '{% if %}',
    '{{',
    '{{ 1',
    '{% for x in y %}',
    "{{ 'a }}",
    '{{ (1 }}',
    '{{ 1) }}',
    "{{ {'a' 1} }}",
    '{% endif %}',
    '{{ a b }}',
    '{{ }}',
    '{% set %}',
    '{{ 1 +  }}',
    '{% if 1 %}{% else %}{% elif 2 %}{% endif %}',
]
# fmt: on


@pytest.mark.parametrize("source", RENDERED)
def test_a_template_gives_what_it_gives_in_jinja2(source: str) -> None:
    variables = {"messages": [{"a": 1}]}
    assert rendered(source, variables) == reference(source, variables)


@pytest.mark.parametrize("source", REFUSED)
def test_what_is_an_error_in_jinja2_is_one(source: str) -> None:
    with pytest.raises(TemplateError):
        rendered(source, {"messages": [{"a": 1}]})


@pytest.mark.parametrize(
    "layout", ["%d %b %Y", "%Y-%m-%d", "%A, %B %d", "%a %j %p %I %y %%", "%-d.%-m.", "%F", "%e", "in %B"]
)
def test_the_date_is_written_as_python_writes_it(layout: str) -> None:
    source = "{{ strftime_now('" + layout + "') }}"
    before, got, after = reference(source, {}), rendered(source, {}), reference(source, {})
    assert got in (before, after)
