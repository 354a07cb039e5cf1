// The data of the page, from the collector that serves it. `data/embedded.js` offers the same without a server.

const source = {
  /** A page with its data inside shows one profile that does not change. */
  isEmbedded: false,
  /** Length of what can be shown, in seconds; here it grows. */
  spanS: Infinity,

  /** Answers a question of the API with parameters, as pairs. */
  async ask(question, parameters) {
    let answer;
    try {
      answer = await fetch(`/api/v1/${question}?${new URLSearchParams(parameters)}`);
    } catch {
      throw new Error(`The collector at ${location.host} does not answer. Is it running?`);
    }
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(body.error || `${answer.status} ${answer.statusText}`);
    return body;
  },
};
