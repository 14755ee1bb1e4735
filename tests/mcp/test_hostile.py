from __future__ import annotations
import json, time, resource, asyncio, tracemalloc
import httpx, pytest
from tests.conftest import Cast
from tests.mcp.tools import SENT, calling, post, rpc
M="io.modelcontextprotocol/"
MODERN={"_meta":{M+"protocolVersion":"2026-07-28",M+"clientCapabilities":{"roots":{}},M+"clientInfo":{"name":"x","version":"1"}}}
def modern(method, params, name=None, id=1):
    body=json.dumps({"jsonrpc":"2.0","id":id,"method":method,"params":{**MODERN,**params}})
    h={"mcp_protocol_version":"2026-07-28","mcp_method":method}
    if name: h["mcp_name"]=name
    return body,h
def rss():
    return int(open('/proc/self/statm').read().split()[1])*4//1024
def peak():
    open('/proc/self/clear_refs','w').write('5')
def hwm():
    return [int(l.split()[1])//1024 for l in open('/proc/self/status') if l.startswith('VmHWM')][0]
async def timed(what, coro):
    peak(); b=rss(); t=time.perf_counter(); 
    try:
        r=await coro
        s=f"{r.status_code} {len(r.content)} {r.text[:300]!r}"
    except BaseException as e:
        s=f"EXC {type(e)} {str(e)[:200]}"
    print(f"== {what}: {time.perf_counter()-t:.2f}s peak+{hwm()-b}MB {s}")
async def test_cost(client: httpx.AsyncClient, cast: Cast, app):
    print(app.state.body_max_bytes)
    a=cast.alice
    big="x"*4_000_000
    n=8_300_000
    def fill(unit): return ",".join([unit]*( (n)//(len(unit)+1)))
    await timed("rest 4MB", client.post("/v1/events",content=json.dumps({"projectId":a.project.canonical_id,"eventType":"x","payload":big}),headers=a.headers))
    await timed("rest arr", client.post("/v1/events",content='{"projectId":"%s","eventType":"x","payload":[%s]}'%(a.project.canonical_id,fill("1")),headers=a.headers))
    await timed("rest objs", client.post("/v1/events",content='{"projectId":"%s","eventType":"x","payload":[%s]}'%(a.project.canonical_id,fill("{}")),headers=a.headers))
    await timed("mcp 4MB", post(client,a,calling("observation_record_event",json.dumps({"projectId":a.project.canonical_id,"eventType":"x","payload":big}))))
    for u in ("1","{}",'{"a":1}','""'):
        await timed("mcp arr "+u, post(client,a,calling("observation_record_event",'{"projectId":"%s","eventType":"x","payload":[%s]}'%(a.project.canonical_id,fill(u)))))
        await timed("ids arr "+u, post(client,a,calling("observation_get",'{"ids":[%s]}'%fill(u))))
    await timed("surrogate arr", post(client,a,calling("observation_record_event",'{"projectId":"%s","eventType":"x","payload":["\\ud83d",%s]}'%(a.project.canonical_id,fill("1")))))
    await timed("top-level array", post(client,a,'[%s]'%fill("1")))
    await timed("meta", post(client,a,'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":[%s]}}}'%fill("{}")))
    kv=",".join(f'"{i}":1' for i in range(590_000))
    await timed("prompt args int", post(client,a,'{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"what_do_we_know","arguments":{%s}}}'%kv))
    await timed("complete ctx", post(client,a,'{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"},"context":{"arguments":{%s}}}}'%kv))
    for v in ("1",'{}','{"roots":[]}','{"roots":[{}]}'):
        kv2=",".join(f'"{i}":{v}' for i in range(8_000_000//(10+len(v))))
        await timed("inputResponses legacy "+v, post(client,a,'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"observation_search","arguments":{"query":"a"},"inputResponses":{%s}}}'%kv2))
        b,h=modern("tools/call",{"name":"observation_search","arguments":{"query":"a"},"inputResponses":"@@"},"observation_search")
        await timed("inputResponses modern "+v, post(client,a,b.replace('"@@"','{%s}'%kv2),**h))
    for v in ("1","{}",'{"uri":"file:///a"}'):
        b,h=modern("tools/call",{"name":"observation_search","arguments":{"query":"a"},"inputResponses":{"roots":{"roots":"@@"}}},"observation_search")
        await timed("roots modern "+v, post(client,a,b.replace('"@@"','[%s]'%fill(v)),**h))
    b,h=modern("tools/call",{"name":"observation_search","arguments":{"query":"a"},"inputResponses":{"roots":{"content":"@@"}}},"observation_search")
    await timed("content modern", post(client,a,b.replace('"@@"','[%s]'%fill("{}")),**h))
    await timed("initialize", post(client,a,'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"a","version":"1","icons":[%s]},"capabilities":{}}}'%fill("{}")))
    await timed("subscribe list", post(client,a,'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[%s]}'%fill("{}")))
    await timed("uri", post(client,a,json.dumps({"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"cmserver://projects/"+"%41/"*2_000_000+"x"}})))
    await timed("uri2", post(client,a,json.dumps({"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"cmserver://sessions/"+"/"*5_000_000+"x"}})))
    await timed("toolname", post(client,a,calling("x"*8_000_000,"{}")))
    await timed("method", post(client,a,'{"jsonrpc":"2.0","id":1,"method":"%s"}'%("x"*8_000_000)))
    await timed("id", post(client,a,'{"jsonrpc":"2.0","id":"%s","method":"ping"}'%("x"*8_000_000)))
