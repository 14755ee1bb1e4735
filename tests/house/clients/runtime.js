export class ApiError extends Error {
  constructor(status, refusal) {
    super(refusal.message ?? "This is no answer of cmserver.");
    const { error = "", issues = [], requestId = "" } = refusal;
    Object.assign(this, { name: "ApiError", status, code: error, issues, requestId });
  }
}

function segment(text) {
  if (["", ".", ".."].includes(String(text))) throw new RangeError(`${JSON.stringify(text)} names nothing.`);
  return encodeURIComponent(text);
}

export class Client {
  constructor(url, key, { timeoutSeconds = 60 } = {}) {
    this._url = url.replace(/\/+$/, "");
    this._headers = { Authorization: `Bearer ${key}`, Accept: "application/json", "Content-Type": "application/json" };
    this._milliseconds = timeoutSeconds * 1000;
  }

  async _send(statuses, method, path, query, body) {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const signal = AbortSignal.timeout(this._milliseconds);
    const options = { method, headers: this._headers, body: body && JSON.stringify(body), redirect: "manual", signal };
    const response = await fetch(`${this._url}${path}?${new URLSearchParams(given)}`, options);
    const answer = await response.json().catch((error) => { if (!(error instanceof SyntaxError)) throw error; });
    if (!statuses.includes(response.status) || answer === undefined) throw new ApiError(response.status, answer ?? {});
    return answer;
  }

  async *pages(method, args = {}) {
    let cursor;
    do {
      const page = await method.call(this, cursor ? { ...args, cursor } : args);
      yield page;
      cursor = page.nextCursor;
    } while (cursor);
  }
}
