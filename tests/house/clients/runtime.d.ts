/** A refusal: `code` is its name for programs, empty where a proxy answered; `message` is for people. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  /** The wrong fields: the path of each in what was sent (`$.title`), and what is wrong with it. */
  readonly issues: Array<{ path: string; message: string }>;
  readonly requestId: string;
}

export class Client {
  constructor(url: string, key: string, options?: { timeoutSeconds?: number });
  /** The pages of a list: `for await (const page of client.pages(client.getObservations, { limit: 100 }))`. */
  pages<P extends unknown[], T>(method: (...args: P) => Promise<T>, ...args: P): AsyncGenerator<T, void, undefined>;
}
