// Sessions of TLS by Node.js: a client, a server in the same event loop, and a child.
"use strict";
const { execFileSync } = require("child_process");
const fs = require("fs");
const https = require("https");
const tls = require("tls");

const [folder, port, child] = process.argv.slice(2);
const read = (name) => fs.readFileSync(`${folder}/${name}`);
const ca = read("ca.pem");

const ask = (port) =>
    new Promise((done, failed) => {
        const request = https.get({ host: "localhost", port, ca, agent: false }, (response) => {
            const { socket } = response;
            const agreed = [socket.getProtocol(), socket.getCipher().name, socket.authorized];
            let body = "";
            response.on("data", (piece) => (body += piece));
            response.on("end", () => done([response.statusCode, body, ...agreed]));
        });
        request.on("error", failed);
    });

(async () => {
    console.log("client:", await ask(port));
    if (child) {
        return;
    }
    const server = https.createServer({ cert: read("localhost.pem"), key: read("localhost.key") }, (_, response) => {
        response.end("hello from Node.js");
    });
    await new Promise((done) => server.listen(0, "localhost", done));
    const own = server.address().port;
    console.log("server:", await Promise.all(Array.from({ length: 20 }, () => ask(own))));
    server.close();
    console.log("ciphers:", tls.getCiphers().length);
    console.log("child:", execFileSync(process.execPath, [...process.argv.slice(1), "child"], { encoding: "utf8" }));
})();
