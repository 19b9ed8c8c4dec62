// How messages come: as they happen, or out of a file.

/** Live follows a fabric: first what is kept, then what comes. */
export class Live {
  constructor(take, say) {
    this.take = take;
    this.say = say;
    this.open();
  }

  open() {
    // One stream has both: it begins with what is kept, and when it breaks the browser
    // goes on after the last message that it had.
    this.source = new EventSource("api/stream");
    this.source.onopen = () => this.say("live");
    this.source.onmessage = (e) => this.take(JSON.parse(e.data));
    this.source.onerror = () => {
      this.say("lost");
      if (this.source.readyState === EventSource.CLOSED) {
        this.again = setTimeout(() => this.open(), 3000);
      }
    };
  }

  close() {
    clearTimeout(this.again);
    this.source.close();
  }
}

/** readFile gives each message of a file to take. A file of snapshots is made into
 * messages by the server that the page comes from. */
export async function readFile(file, take) {
  const head = await file.slice(0, 4096).text();
  let text = file.stream();
  if (!/^\s*\{\s*"type"\s*:/.test(head)) {
    const answer = await fetch("api/play", { method: "POST", body: file });
    if (!answer.ok) throw new Error((await answer.json()).error);
    text = answer.body;
  }
  const reader = text.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", line = 0;
  const use = (l) => {
    line++;
    if (!l.trim()) return;
    let m;
    try { m = JSON.parse(l); } catch { throw new Error(`line ${line} is not JSON: is it a file of snapshots, or one that was saved here?`); }
    take(m);
  };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach(use);
  }
  use(rest);
}
