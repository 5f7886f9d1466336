<?php
// Sessions of TLS by PHP: a client of the test's server, and a server that a child asks. As a page it is a client only.
$page = PHP_SAPI !== "cli";
$folder = $page ? $_SERVER["FOLDER"] : $argv[1];
$port = $page ? $_SERVER["PORT"] : $argv[2];

function ask($folder, $port) {
    $context = stream_context_create(["ssl" => ["cafile" => "$folder/ca.pem"]]);
    $stream = stream_socket_client("tls://localhost:$port", $code, $error, 60, STREAM_CLIENT_CONNECT, $context);
    if (!$stream) {
        return "failed: $error";
    }
    fwrite($stream, "GET / HTTP/1.0\r\n\r\n");
    $answer = stream_get_contents($stream);
    $agreed = stream_get_meta_data($stream)["crypto"];
    return json_encode([$answer, $agreed["protocol"], $agreed["cipher_name"]]);
}

echo "client: ", ask($folder, $port), "\n";
echo "url: ", file_get_contents("https://localhost:$port/", false,
    stream_context_create(["ssl" => ["cafile" => "$folder/ca.pem"]])), "\n";
if ($page || in_array("child", $argv)) {
    exit;
}
$context = stream_context_create(["ssl" => ["local_cert" => "$folder/localhost.pem", "local_pk" => "$folder/localhost.key"]]);
$server = stream_socket_server("tls://127.0.0.1:0", $code, $error, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context);
$own = explode(":", stream_socket_get_name($server, false))[1];
$output = ["pipe", "w"];
$child = proc_open([PHP_BINARY, $argv[0], $folder, $own, "child"], [1 => $output], $pipes);
for ($i = 0; $i < 2; $i++) {
    $client = stream_socket_accept($server, 60);
    while (trim(fgets($client)) !== "");
    fwrite($client, "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello from PHP");
    fclose($client);
}
echo "child: ", stream_get_contents($pipes[1]), "\n";
