//! Small clients, as devices have them: they keep less than TLS allows servers to send.

mod common;

use std::process::Command;

use common::*;

/// A client of wolfSSL: one handshake, a ping, its echo, and the same again in the same session. Arguments: port,
/// minor version.
const WOLFSSL: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

static WOLFSSL_SESSION *session;

static int once(WOLFSSL_CTX *context, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) return 2;
    WOLFSSL *ssl = wolfSSL_new(context);
    wolfSSL_set_fd(ssl, fd);
    if (session) wolfSSL_set_session(ssl, session);
    char answer[4];
    if (wolfSSL_connect(ssl) != WOLFSSL_SUCCESS || wolfSSL_write(ssl, "ping", 4) != 4) {
        printf("error %d\n", wolfSSL_get_error(ssl, 0));
        return 1;
    }
    int got = wolfSSL_read(ssl, answer, 4);
    if (got != 4 || memcmp(answer, "ping", 4)) {
        printf("error %d in reading\n", wolfSSL_get_error(ssl, got));
        return 1;
    }
    printf("%s resumed %d\n", wolfSSL_get_version(ssl), wolfSSL_session_reused(ssl));
    session = wolfSSL_get1_session(ssl);
    wolfSSL_shutdown(ssl);
    wolfSSL_free(ssl);
    close(fd);
    return 0;
}

int main(int count, char **arguments) {
    wolfSSL_Init();
    int minor = atoi(arguments[2]);
    WOLFSSL_CTX *context =
        wolfSSL_CTX_new(minor == 3 ? wolfTLSv1_3_client_method() : wolfTLSv1_2_client_method());
    wolfSSL_CTX_set_verify(context, WOLFSSL_VERIFY_NONE, 0);
    wolfSSL_CTX_UseSessionTicket(context);
    int failed = once(context, atoi(arguments[1]));
    return failed ? failed : once(context, atoi(arguments[1]));
}
"#;

/// wolfSSL of Debian 12 (5.5) ends the connection for a ticket nonce of more than eight bytes.
#[test]
fn wolfssl_is_served_and_resumes_its_session() {
    let files = Files::new();
    let (source, program) = (files.path("client.c"), files.path("client"));
    std::fs::write(&source, WOLFSSL).expect("written");
    let compiled = Command::new("cc")
        .args([&source, &"-o".into(), &program, &"-lwolfssl".into()])
        .output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        println!("SKIP: no compiler of C, or no wolfSSL (libwolfssl-dev)");
        return;
    }
    for enabled in [true, false] {
        let mut config = simple(&files, Kind::Ecdsa, echo());
        config.batching.enabled = enabled;
        let server = start(&config);
        let port = server.addresses()[0].port().to_string();
        for minor in ["3", "2"] {
            let output = Command::new(&program).args([&port[..], minor]).output();
            let output = output.expect("a client");
            let text = String::from_utf8_lossy(&output.stdout);
            let expected = format!("TLSv1.{minor} resumed 0\nTLSv1.{minor} resumed 1\n");
            assert_eq!(text, expected, "batching: {enabled}");
        }
    }
}
