// Written by `cmserver connect @NAME@`, and removed by `cmserver disconnect @NAME@`.
// Hands what happens in a session to the hook client of cmserver, and gives the model the context that it answers at the start, and the rules.
import { spawn } from "node:child_process"

const HOOK = @HOOK@
const RULES = @RULES@
const TIMEOUT_MS = 5000
const MAX_TEXT = 1_000_000

const cut = (text) => (typeof text === "string" ? text.slice(0, MAX_TEXT) : text)

const callHook = (event, payload, folder) =>
  new Promise((resolve) => {
    let answer = ""
    const finish = () => {
      try {
        resolve(JSON.parse(answer))
      } catch {
        resolve({})
      }
    }
    try {
      const child = spawn(HOOK, [event], { cwd: folder, stdio: ["pipe", "pipe", "ignore"], timeout: TIMEOUT_MS })
      child.on("error", () => resolve({}))
      child.stdin.on("error", () => {})
      child.stdout.on("data", (chunk) => (answer += chunk))
      child.on("close", finish)
      child.stdin.end(JSON.stringify({ hook_event_name: event, cwd: folder, ...payload }))
    } catch {
      resolve({})
    }
  })

export const CmserverPlugin = async ({ directory }) => {
  const parents = new Map() // of a sub-agent's session: the session that started it
  const created = new Set() // sessions that have begun in this process
  const starts = new Map() // session -> the promise of its context
  const replies = new Map() // session -> what the model has said last
  const failures = new Set() // calls of tools that were reported as failed
  let queue = Promise.resolve() // one call after the other, so that they arrive in order

  const send = (event, session, payload) => {
    const parent = parents.get(session)
    const ids = parent ? { session_id: parent, agent_id: session } : { session_id: session }
    const call = queue.then(() => callHook(event, { ...ids, ...payload }, directory))
    queue = call.then(() => {})
    return call
  }
  const start = (session) => {
    if (parents.has(session)) return Promise.resolve("")
    if (!starts.has(session)) {
      const call = send("SessionStart", session, { source: created.has(session) ? "startup" : "resume" })
      starts.set(session, call.then((answer) => answer.hookSpecificOutput?.additionalContext ?? ""))
    }
    return starts.get(session)
  }
  const end = (session) => {
    if (starts.delete(session)) send("SessionEnd", session, {})
  }

  return {
    event: async ({ event }) => {
      const properties = event.properties ?? {}
      const session = properties.sessionID ?? properties.info?.id
      if (event.type === "session.created") {
        created.add(session)
        if (properties.info?.parentID) parents.set(session, properties.info.parentID)
      } else if (event.type === "session.idle" && replies.has(session)) {
        send("Stop", session, { last_assistant_message: replies.get(session) })
        replies.delete(session)
      } else if (event.type === "session.compacted") {
        send("PostCompact", session, {})
      } else if (event.type === "session.deleted") {
        end(session)
      } else if (event.type === "message.part.updated" && properties.part?.type === "tool") {
        const part = properties.part
        if (part.state?.status !== "error" || failures.has(part.callID)) return
        failures.add(part.callID)
        send("PostToolUseFailure", part.sessionID, {
          tool_name: part.tool,
          tool_input: part.state.input,
          tool_use_id: part.callID,
          error: cut(part.state.error),
        })
      }
    },
    "chat.message": async ({ sessionID, messageID }, { parts }) => {
      const text = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text).join("\n")
      await start(sessionID)
      send("UserPromptSubmit", sessionID, { prompt: cut(text), prompt_id: messageID ?? parts[0]?.messageID })
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, result) => {
      send("PostToolUse", sessionID, {
        tool_name: tool,
        tool_input: args,
        tool_use_id: callID,
        tool_response: { title: result?.title, output: cut(result?.output), metadata: { exit: result?.metadata?.exit } },
      })
    },
    "experimental.text.complete": async ({ sessionID }, { text }) => {
      replies.set(sessionID, cut(text))
    },
    "experimental.chat.system.transform": async ({ sessionID }, { system }) => {
      // Other requests of the session, as for its title, may go to another model: only the agent's own tells of the folder.
      if (!system.some((text) => text.includes("Is directory a git repo: "))) return
      const context = sessionID ? await (starts.get(sessionID) ?? "") : ""
      system.push(RULES, ...(context ? [context] : []))
    },
    dispose: async () => {
      for (const session of [...starts.keys()]) end(session)
      await queue
    },
  }
}
