/** A server that does to each connection what a test says: hang, cut, trickle, refuse. */

import { createServer } from "node:http";

/**
 * Answer the n-th request by the n-th script; the last one goes on. `requests` is what came.
 *
 * @param {...((request: any, response: any) => void)} scripts
 */
export async function scripted(...scripts) {
  const requests = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => { body += chunk; });
    request.on("end", () => {
      const { method, url, headers } = request;
      requests.push({ method, url, headers, body });
      scripts[Math.min(requests.length, scripts.length) - 1](request, response);
    });
  });
  // A test that fails before it closes its server must not keep the run from ending.
  server.on("connection", (socket) => socket.unref());
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Answer with JSON. */
export const json = (status, body, headers = {}) => (_, response) => {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(JSON.stringify(body));
};
export const hang = () => {};
/** Take the request and close the connection without a word. */
export const cut = (request) => request.socket.destroy();
/** Begin an answer that never ends, a byte at a time. */
export const trickle = (_, response) => {
  response.writeHead(200, { "Content-Type": "application/json" });
  const timer = setInterval(() => response.write(" "), 20);
  response.on("close", () => clearInterval(timer));
};
/** Begin an event stream, send these texts, then end or stay. */
export const events = (texts, { end = true, after = 0 } = {}) => (_, response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.flushHeaders();
  for (const text of texts) response.write(text);
  if (end) setTimeout(() => response.end(), after);
};
