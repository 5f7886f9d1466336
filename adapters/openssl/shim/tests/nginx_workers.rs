//! nginx with two workers: a session that one has begun is resumed by the other.

#![forbid(unsafe_code)]

mod common;

use common::With;
use common::client::{VERSIONS, Wish};
use common::nginx::{BAD, CERTIFICATE, nginx_files, nginx_of};

/// Keys of tickets are the master's, from which the workers inherit them; stateful sessions of TLS 1.2
/// and 1.3 are in shared memory.
#[test]
fn sessions_are_resumed_by_another_worker() {
    for tickets in ["on", "off"] {
        let Some(files) = nginx_files() else { return };
        let http = format!(
            "ssl_session_tickets {tickets}; ssl_session_cache shared:sessions:1m;
             server {{
                 listen ADDRESS ssl reuseport; {CERTIFICATE}
                 location / {{ return 200 \"$ssl_session_reused$pid\"; }}
             }}"
        );
        let server = nginx_of(files, "worker_processes 2;", &http, With::Shim);
        for version in VERSIONS {
            let wish = Wish {
                version,
                resumes: true,
                ..Wish::default()
            };
            // By the address of the client, the kernel chooses the worker.
            let mut resumed_by_another = 0;
            common::eventually("another worker has resumed", || {
                let client = wish.client(&server.files);
                let ask = || client.get(server.address, "a.test", "/").expect("an answer");
                let first = ask();
                let (reused, begun_by) = first.body.split_at(1);
                assert_eq!(reused, ".", "{first:?}");
                for _ in 0..8 {
                    let next = ask();
                    let (reused, resumed_by) = next.body.split_at(1);
                    assert!(next.resumed && reused == "r", "{tickets}: {next:?}");
                    resumed_by_another += usize::from(resumed_by != begun_by);
                }
                resumed_by_another >= 8
            });
        }
        assert_eq!(server.process().children().len(), 2, "no worker has died");
        server.assert_log_without(BAD);
    }
}
