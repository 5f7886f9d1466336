//! Apache's event MPM with the provider alone: its threads block, and share passes.

#![forbid(unsafe_code)]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use common::client::{VERSIONS, Wish};
use common::{Files, Kind, Server, With};
use rustix::process::Signal;

#[test]
fn handshakes_go_on_during_graceful_restarts() {
    let Some(program) = common::installed("apache2") else {
        return;
    };
    let modules = Path::new("/usr/lib/apache2/modules");
    if !modules.join("mod_ssl.so").exists() {
        return println!("SKIP: Apache's mod_ssl is not installed");
    }
    let files = Files::new();
    let address = common::free_address();
    let names = [(Kind::Rsa, "rsa.test"), (Kind::Ecdsa, "ecdsa.test")];
    let hosts = names.map(|(kind, name)| {
        files.certificate(kind, name);
        format!(
            "<VirtualHost *:*>\n ServerName {name}\n SSLEngine on\n\
             SSLCertificateFile DIR/{name}.pem\n SSLCertificateKeyFile DIR/{name}.key\n\
             ErrorDocument 403 {name}\n <Location />\n Require all denied\n </Location>\n\
             </VirtualHost>\n"
        )
    });
    let load = ["mpm_event", "authz_core", "socache_shmcb", "ssl"];
    let load = load.map(|name| {
        let file = modules.join(format!("mod_{name}.so"));
        format!("LoadModule {name}_module {}\n", file.display())
    });
    let config = format!(
        "ServerRoot DIR/\nServerName localhost\nPidFile DIR/pid\nDefaultRuntimeDir DIR/\n\
         ErrorLog DIR/error.log\nListen {address}\n{}\
         User #65534\nGroup #65534\nThreadsPerChild 25\nStartServers 2\nServerLimit 4\n\
         MinSpareThreads 25\nMaxSpareThreads 75\nMaxRequestWorkers 75\n\
         SSLSessionCache none\n{}",
        load.concat(),
        hosts.concat()
    );
    let directory = files.path("");
    let config = config.replace("DIR/", &directory.display().to_string());
    let config = files.write("apache.conf", config);
    let config = config.to_str().expect("a path of text");
    let arguments = ["-DFOREGROUND", "-f", config].map(str::to_owned);
    let server = Server::start(files, address, &program, &arguments, With::Provider);
    let clients = VERSIONS.map(|version| {
        let wish = Wish {
            version,
            ..Wish::default()
        };
        wish.client(&server.files)
    });
    let (over, completed) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Over(&over);
            for _ in 0..3 {
                let goal = completed.load(Relaxed) + 100;
                common::eventually("handshakes go on", || completed.load(Relaxed) >= goal);
                let before = server.process().children();
                server.process().signal(Signal::USR1);
                common::eventually("other processes have taken over", || {
                    let now = server.process().children();
                    !now.is_empty() && now.is_disjoint(&before)
                });
            }
        });
        common::load_while(16, |i| {
            if over.load(Relaxed) {
                return Ok(false);
            }
            let (_, name) = names[i % 2];
            clients[i / 2 % 2].expect(address, name, "/", name)?;
            completed.fetch_add(1, Relaxed);
            Ok(true)
        });
    });
    server.assert_log_without(&["exit signal"]);
}

/// Ends the load, also when a test fails in the middle.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
