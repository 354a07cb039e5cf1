// The data of the page, from the collector that serves it. `data/embedded.js` offers the same without a server.

const source = {
  /** A page with its data inside shows one profile that does not change. */
  isEmbedded: false,
  /** The time that is shown if none is chosen, for a lake, which is too large to be shown as a whole; else empty. */
  usualTime: document.querySelector("meta[name=usual-time]")?.content || "",
  /** Length of what can be shown, in seconds; here it grows. */
  spanS: Infinity,

  /** Cancels the requests that are in progress, so that the collector does not work for them. */
  cancel() {
    this.requests.abort();
    this.requests = new AbortController();
  },
  requests: new AbortController(),

  /** The call tree of an answer. */
  treeOf: (tree) => new CallTree(tree),

  /** Answers a question of the API with parameters, as pairs. */
  async ask(question, parameters) {
    let answer;
    try {
      answer = await fetch(`/api/v1/${question}?${new URLSearchParams(parameters)}`, { signal: this.requests.signal });
    } catch {
      throw new Error(`The collector at ${location.host} does not answer. Is it running?`);
    }
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(body.error || `${answer.status} ${answer.statusText}`);
    return question === "chart" ? this.chartOf(body) : body;
  },

  /** The samples of an answer as rows of node, thread, bucket and CPU time. */
  chartOf({ from_ns, bucket_ns, threads, unit_ns, samples, ...tree }) {
    const nodes = fromDifferences(samples.nodes);
    const rows = samples.units.map((units, row) => [nodes[row], samples.threads[row], samples.buckets[row], units * unit_ns]);
    return { from_ns, bucket_ns, threads, model: new CallTree(tree), rows };
  },
};
