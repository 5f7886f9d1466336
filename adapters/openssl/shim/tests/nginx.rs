//! nginx with the provider and the preloaded library: everything that its TLS does must work as
//! without them.

#![forbid(unsafe_code)]

mod common;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use common::client::{self, Client, GROUPS, VERSIONS, Wish};
use common::nginx::servers_of_each_kind;
use common::nginx::{BAD, CERTIFICATE, KINDS, nginx, nginx_by_imports, nginx_files, nginx_with};
use common::{Files, Kind, With};
use widelane_status::Asked;
use widelane_testkit::servers;

#[test]
fn full_handshakes_of_every_kind() {
    let Some(files) = nginx_files() else { return };
    let blocks = servers_of_each_kind(&files);
    let http = format!("ssl_session_cache off; ssl_session_tickets off; {blocks}");
    let server = nginx(files, &http);
    let client = |version, group| {
        let wish = Wish {
            version,
            group,
            ..Wish::default()
        };
        (group, wish.client(&server.files))
    };
    let clients: Vec<_> = VERSIONS
        .iter()
        .flat_map(|version| GROUPS.map(|group| client(version, group)))
        .collect();
    common::load(64, 500, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        let (group, client) = &clients[i / KINDS.len() % clients.len()];
        let answer = client.expect(server.address, name, "/", name)?;
        match answer.group == Some(group.name()) {
            true => Ok(()),
            false => Err(format!("agreed on {:?}", answer.group)),
        }
    });
    server.assert_log_without(BAD);
}

/// An operator takes lanes away and gives them back while handshakes wait for passes: none is lost, in whichever
/// of its steps it is.
#[test]
fn handshakes_outlast_lanes_that_are_switched_off_and_on() {
    let Some(files) = nginx_files() else { return };
    let blocks = servers_of_each_kind(&files);
    let http = format!("ssl_session_cache off; ssl_session_tickets off; {blocks}");
    let server = nginx(files, &http);
    if !server.has_lanes() {
        println!("SKIP: this CPU has no lanes, so that there is nothing to switch off");
        return;
    }
    let worker = server.process().only_child();
    let clients = [0, 1].map(|version| Wish::of(version).client(&server.files));
    // Jobs so far, after so many handshakes more.
    let handshakes = |count, asked: &(dyn Fn(usize) -> Option<Asked> + Sync)| {
        common::load(64, count, |i| {
            asked(i).into_iter().for_each(|asked| worker.ask(asked));
            let (_, name) = KINDS[i % KINDS.len()];
            let client = &clients[i / KINDS.len() % clients.len()];
            client.expect(server.address, name, "/", name).map(drop)
        });
        let counted = worker.counts().expect("a page").operations.into_iter();
        counted.map(|one| one.totals.jobs).sum::<u64>()
    };
    // The first ones prepare keys.
    handshakes(64, &|_| None);
    let often = |i| match i % 10 {
        0 => Some(Asked::Off),
        5 => Some(Asked::On),
        _ => None,
    };
    handshakes(600, &often);
    worker.ask(Asked::Off);
    let jobs = handshakes(64, &|_| None);
    assert_eq!(handshakes(64, &|_| None), jobs, "OpenSSL does all of it");
    worker.ask(Asked::On);
    assert!(handshakes(64, &|_| None) > jobs, "lanes are back");
    // Each wait is counted, of lanes and of OpenSSL; one for a key exchange is never shorter than its multiplication.
    let counts = worker.counts().expect("a page");
    assert!(counts.signed >= 64 * 4);
    assert_eq!(counts.signed_times.total(), counts.signed);
    assert_eq!(counts.agreed_times.total(), counts.agreed);
    let shortest = counts.agreed_times.quantile(0.0).expect("key exchanges");
    assert!(shortest > Duration::from_micros(4), "{shortest:?}");
    server.assert_log_without(BAD);
}

/// Nothing is preloaded: the provider puts the library into the imports of nginx and its modules.
#[test]
fn imports_are_replaced_where_nothing_is_preloaded() {
    let Some(files) = nginx_files() else { return };
    let blocks = servers_of_each_kind(&files);
    let server = nginx_by_imports(files, &blocks);
    let worker = server.process().only_child();
    if server.has_lanes() {
        let stacks = server.suspended_at_once(worker, 16);
        assert!(stacks >= 4, "at most {stacks} handshakes waited at once");
    }
    common::load(64, 200, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        let wish = Wish::of(i / KINDS.len());
        let client = wish.client(&server.files);
        client.expect(server.address, name, "/", name).map(drop)
    });
    server.assert_log_without(BAD);
}

#[test]
fn the_first_start_measures_what_passes_cost_for_all_others() {
    let Some(files) = nginx_files() else { return };
    let directory = files.path("");
    let server = format!("server {{ listen 127.0.0.1:1 ssl; {CERTIFICATE} }}");
    let server = server.replace("DIR/", &directory.display().to_string());
    let config = servers::nginx(&directory, "", &server);
    let program = common::installed("nginx").expect("it was found");
    let kept = files.path("cache/calibration");
    let check = || {
        // As nginx has it from its start on.
        let mut nginx = Command::new("sh");
        nginx.args(["-c", "umask 0; exec \"$0\" \"$@\""]);
        nginx.arg(&program).arg("-t").arg("-c").arg(&config);
        files.environment(&mut nginx, With::Shim);
        files.keep_calibration_in(&kept);
        let ended = nginx.output().expect("it starts");
        assert!(ended.status.success(), "{ended:?}");
    };
    check();
    let measured = std::fs::read_to_string(&kept).expect("it was measured");
    for made in [kept.as_path(), kept.parent().expect("a folder")] {
        let mode = std::fs::metadata(made).expect("it is there").mode();
        assert_eq!(mode & 0o022, 0, "other users can write to {}", made.display());
    }
    for operation in ["rsa2048-sign", "p256-ecdsa-sign", "x25519-derive"] {
        assert!(measured.contains(operation), "{operation}: {measured}");
    }
    let inode = || std::fs::metadata(&kept).expect("it is there").ino();
    let first = inode();
    check();
    assert_eq!(inode(), first, "the second start has measured again");
    std::fs::write(&kept, "{}").expect("ours");
    check();
    let again = std::fs::read_to_string(&kept).expect("it is there");
    assert!(again.contains("rsa2048-sign"), "{again}");
}

#[test]
fn sessions_are_resumed() {
    for tickets in ["on", "off"] {
        let Some(files) = nginx_files() else { return };
        let http = format!(
            "ssl_session_tickets {tickets}; ssl_session_cache shared:sessions:1m;
             server {{
                 LISTEN ssl; {CERTIFICATE}
                 location / {{ return 200 $ssl_session_reused; }}
             }}"
        );
        let server = nginx(files, &http);
        common::load(16, 64, |i| {
            let wish = Wish {
                version: VERSIONS[i % 2],
                resumes: true,
                ..Wish::default()
            };
            let client = wish.client(&server.files);
            client.expect(server.address, "a.test", "/", ".")?;
            for _ in 0..2 {
                let again = client.expect(server.address, "a.test", "/", "r")?;
                if !again.resumed {
                    return Err("the client did not resume".into());
                }
            }
            Ok(())
        });
        server.assert_log_without(BAD);
    }
}

#[test]
fn early_data_is_answered_before_the_handshake_ends() {
    let Some(files) = nginx_files() else { return };
    let http = format!(
        "ssl_early_data on;
         server {{ LISTEN ssl; {CERTIFICATE} location / {{ return 200 early:$ssl_early_data; }} }}"
    );
    let server = nginx(files, &http);
    common::load(16, 64, |_| {
        let wish = Wish {
            resumes: true,
            ..Wish::default()
        };
        let client = wish.client(&server.files);
        client.expect(server.address, "a.test", "/", "early:")?;
        let answer = early(&client, server.address).map_err(|error| error.to_string())?;
        match answer.contains("early:1") {
            true => Ok(()),
            false => Err(answer),
        }
    });
    server.assert_log_without(BAD);
}

/// Sends a request as early data and reads the answer before it sends its Finished.
fn early(client: &Client, server: SocketAddr) -> io::Result<String> {
    let mut tls = client.connect(server, "a.test")?;
    let mut data = tls.conn.early_data().ok_or(io::Error::other("no ticket"))?;
    write!(data, "{}", client::request("a.test", "/"))?;
    tls.conn.write_tls(&mut tls.sock)?;
    let mut answer = String::new();
    while !answer.contains("early:") {
        if tls.conn.read_tls(&mut tls.sock)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let state = tls.conn.process_new_packets().map_err(io::Error::other)?;
        let mut text = vec![0; state.plaintext_bytes_to_read()];
        tls.conn.reader().read_exact(&mut text)?;
        answer.push_str(&String::from_utf8_lossy(&text));
    }
    match tls.conn.is_early_data_accepted() {
        true => Ok(answer),
        false => Err(io::Error::other("refused")),
    }
}

#[test]
fn http2_carries_large_bodies() {
    if common::installed("curl").is_none() {
        return;
    }
    let Some(files) = nginx_files() else { return };
    files.certificate(Kind::Ecdsa, "a.test");
    let body: Vec<u8> = (0..4_000_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    files.write("body.bin", &body);
    let http = format!("server {{ LISTEN ssl http2; {CERTIFICATE} root DIR/; }}");
    let server = nginx(files, &http);
    common::load(8, 16, |i| {
        let file = server.files.path(&format!("got-{i}"));
        let got = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--http2"])
            .args(["--write-out", "%{http_version}", "--cacert"])
            .arg(server.files.path("ca.pem"))
            .args(["--connect-to", &format!("::{}", server.address)])
            .arg("--output")
            .arg(&file)
            .arg("https://a.test/body.bin")
            .output()
            .expect("curl starts");
        let same = std::fs::read(&file).is_ok_and(|got| got == body);
        match same && got.stdout == b"2" {
            true => Ok(()),
            false => Err(format!("same: {same}, {got:?}")),
        }
    });
    server.assert_log_without(BAD);
}

#[test]
fn client_certificates_are_checked() {
    let Some(files) = nginx_files() else { return };
    let good = [Kind::Rsa, Kind::Ecdsa, Kind::EcdsaP384, Kind::Ed25519]
        .map(|kind| Some(Arc::new(files.certificate(kind, "client.test"))));
    let bad = Files::of("another authority").certificate(Kind::Rsa, "client.test");
    let bad = Some(Arc::new(bad));
    let http = format!(
        "ssl_verify_client on; ssl_client_certificate DIR/ca.pem;
         server {{
             LISTEN ssl; {CERTIFICATE}
             location / {{ return 200 $ssl_client_verify; }}
         }}"
    );
    let server = nginx(files, &http);
    common::load(16, 96, |i| {
        let identity = match i % 6 {
            4 => bad.clone(),
            5 => None,
            good_one => good[good_one].clone(),
        };
        let wish = Wish {
            version: VERSIONS[i / 6 % 2],
            identity,
            ..Wish::default()
        };
        let client = wish.client(&server.files);
        if i % 6 < 4 {
            return client.expect(server.address, "a.test", "/", "SUCCESS").map(drop);
        }
        let answer = client.get(server.address, "a.test", "/")?;
        match answer.head.starts_with("HTTP/1.1 400 ") {
            true => Ok(()),
            false => Err(format!("{answer:?}")),
        }
    });
    server.assert_log_without(BAD);
}

#[test]
fn servers_behind_it_are_asked_in_tls() {
    let Some(files) = nginx_files() else { return };
    files.certificate(Kind::Ecdsa, "behind.test");
    let http = format!(
        "server {{
             LISTEN ssl; {CERTIFICATE}
             location / {{
                 proxy_pass https://ADDRESS; proxy_set_header Host behind.test;
                 proxy_ssl_name behind.test; proxy_ssl_server_name on;
                 proxy_ssl_verify on; proxy_ssl_trusted_certificate DIR/ca.pem;
                 proxy_ssl_session_reuse off; proxy_ssl_protocols TLSv1.3;
                 proxy_ssl_certificate DIR/a.test.pem; proxy_ssl_certificate_key DIR/a.test.key;
             }}
         }}
         server {{
             LISTEN ssl; server_name behind.test; ssl_verify_client on;
             ssl_certificate DIR/behind.test.pem; ssl_certificate_key DIR/behind.test.key;
             ssl_client_certificate DIR/ca.pem;
             location / {{ return 200 $ssl_client_verify:$request_uri; }}
         }}"
    );
    let server = nginx(files, &http);
    let client = Wish::default().client(&server.files);
    common::load(16, 96, |_| {
        client.expect(server.address, "a.test", "/x", "SUCCESS:/x").map(drop)
    });
    server.assert_log_without(BAD);
}

#[test]
fn an_ocsp_response_is_stapled() {
    let Some(files) = nginx_files() else { return };
    // OCSPResponse with the status "try later" (RFC 6960, section 4.2.1).
    let response = b"\x30\x03\x0a\x01\x03";
    files.write("ocsp", response);
    let http = format!(
        "ssl_stapling on; ssl_stapling_file DIR/ocsp;
         server {{ LISTEN ssl; {CERTIFICATE} location / {{ return 200 ok; }} }}"
    );
    let server = nginx(files, &http);
    common::load(16, 32, |i| {
        let wish = Wish::of(i);
        let (client, stapled) = wish.client_that_keeps_ocsp(&server.files);
        client.expect(server.address, "a.test", "/", "ok")?;
        match *stapled.lock().expect("no panic") == response {
            true => Ok(()),
            false => Err("another response".into()),
        }
    });
    server.assert_log_without(BAD);
}

#[test]
fn certificates_are_loaded_in_each_handshake() {
    let Some(files) = nginx_files() else { return };
    for (kind, name) in KINDS {
        files.certificate(kind, name);
    }
    let server = nginx(
        files,
        "server {
             LISTEN ssl;
             ssl_certificate DIR/$ssl_server_name.pem;
             ssl_certificate_key DIR/$ssl_server_name.key;
             location / { return 200 $ssl_server_name; }
         }",
    );
    let client = Wish::default().client(&server.files);
    common::load(16, 128, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        client.expect(server.address, name, "/", name).map(drop)
    });
    server.assert_log_without(BAD);
}

#[test]
fn several_keys_of_one_server_are_chosen_by_the_client() {
    let Some(files) = nginx_files() else { return };
    for (kind, name) in [(Kind::Rsa, "rsa"), (Kind::Ecdsa, "ecdsa")] {
        files.certificate(kind, "a.test");
        for end in ["pem", "key"] {
            std::fs::rename(
                files.path(&format!("a.test.{end}")),
                files.path(&format!("{name}.{end}")),
            )
            .expect("our own files");
        }
    }
    let server = nginx(
        files,
        "server {
             LISTEN ssl; server_name a.test;
             ssl_certificate DIR/rsa.pem; ssl_certificate_key DIR/rsa.key;
             ssl_certificate DIR/ecdsa.pem; ssl_certificate_key DIR/ecdsa.key;
             location / { return 200 ok; }
         }",
    );
    let leaf = |name| CertificateDer::from_pem_file(server.files.path(name)).expect("PEM");
    let (rsa, ecdsa) = (leaf("rsa.pem"), leaf("ecdsa.pem"));
    common::load(16, 64, |i| {
        let only_rsa = i % 2 == 0;
        let wish = Wish {
            version: VERSIONS[i / 2 % 2],
            only_rsa,
            ..Wish::default()
        };
        let client = wish.client(&server.files);
        let answer = client.expect(server.address, "a.test", "/", "ok")?;
        match answer.certificate.as_ref() == Some(if only_rsa { &rsa } else { &ecdsa }) {
            true => Ok(()),
            false => Err("another certificate".into()),
        }
    });
    server.assert_log_without(BAD);
}

#[test]
fn renegotiation_is_refused() {
    if common::installed("openssl").is_none() {
        return;
    }
    let Some(files) = nginx_files() else { return };
    let http = format!("server {{ LISTEN ssl; {CERTIFICATE} location / {{ return 200 ok; }} }}");
    let server = nginx(files, &http);
    let mut s_client = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-connect", &server.address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl starts");
    let mut stdin = s_client.stdin.take().expect("a pipe");
    stdin.write_all(b"R\n").expect("openssl reads");
    let output = s_client.wait_with_output().expect("openssl ends");
    drop(stdin);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no renegotiation"), "{said}");
    let client = Wish::default().client(&server.files);
    common::load(1, 1, |_| client.expect(server.address, "a.test", "/", "ok").map(drop));
    server.assert_log_without(BAD);
}

#[test]
fn lua_may_yield_in_a_handshake() {
    let Some(files) = nginx_files() else { return };
    let modules = Path::new("/usr/lib/nginx/modules");
    let [ndk, lua] = ["ndk_http_module.so", "ngx_http_lua_module.so"].map(|name| modules.join(name));
    if !lua.exists() {
        return println!("SKIP: nginx's module for Lua is not installed");
    }
    files.certificate(Kind::Ecdsa, "b.test");
    let http = format!(
        "server {{
             LISTEN ssl; {CERTIFICATE}
             ssl_certificate_by_lua_block {{
                 local ssl = require 'ngx.ssl'
                 ngx.sleep(0.002)
                 local name = assert(ssl.server_name())
                 if name == 'b.test' then
                     local function read(path)
                         local file = assert(io.open(path)); local text = file:read('*a')
                         file:close(); return text
                     end
                     assert(ssl.clear_certs())
                     assert(ssl.set_cert(assert(ssl.parse_pem_cert(read('DIR/b.test.pem')))))
                     assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(
                         read('DIR/b.test.key')))))
                 end
                 ngx.sleep(0)
             }}
             location / {{ return 200 $ssl_server_name; }}
         }}"
    );
    let load = [ndk, lua].map(|module| format!("load_module {};", module.display()));
    let server = nginx_with(files, &load.concat(), &http);
    common::load(32, 200, |i| {
        let wish = Wish::of(i);
        let name = ["a.test", "b.test"][i / 2 % 2];
        wish.client(&server.files)
            .expect(server.address, name, "/", name)
            .map(drop)
    });
    server.assert_log_without(BAD);
}
