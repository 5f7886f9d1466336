//! `widelane setup` on a tree of its own, and OpenSSL with the files that it writes.

mod under_test;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn files_are_shown_written_once_kept_when_edited_and_removed() {
    let tree = Tree::new();
    tree.put("etc/ssl/openssl.cnf", SYSTEM);
    tree.put("etc/nginx/nginx.conf", "include /etc/nginx/modules-enabled/*.conf;");
    let before = tree.files();

    let shown = tree.setup("nginx", &["--print"]);
    assert_eq!(shown.status.code(), Some(0));
    let unit = "/etc/systemd/system/nginx.service.d/widelane.conf";
    for part in [
        "--- /dev/null\n+++ /etc/widelane/openssl-nginx.cnf\n@@ -0,0 +1,",
        "\n+.include /etc/ssl/openssl.cnf\n",
        "\n+calibration = /var/cache/widelane/openssl-calibration\n",
        "\n+++ /etc/nginx/modules-enabled/90-widelane.conf\n",
        "\n+env LD_PRELOAD;\n",
        &format!("\n+++ {unit}\n"),
        "\n+Environment=OPENSSL_CONF=/etc/widelane/openssl-nginx.cnf\n",
    ] {
        assert!(out(&shown).contains(part), "{part}: {}", out(&shown));
    }
    // Neither of the two may write: the first was told so, the second cannot ask.
    let silent = tree.setup("nginx", &[]);
    assert_eq!(silent.status.code(), Some(2));
    assert_eq!(out(&silent), out(&shown));
    assert!(err(&silent).contains("--yes"));
    assert_eq!(tree.files(), before);

    let written = tree.setup("nginx", &["--yes", "--log", "info"]);
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    assert!(out(&written).contains(&format!("wrote {unit}\n")));
    let after = tree.files();
    assert_eq!(after.len(), before.len() + 3);
    let again = tree.setup("nginx", &["--yes", "--log", "info"]);
    assert!(out(&again).starts_with("nginx is already set up.\n"));
    let other = tree.setup("nginx", &["--yes", "--log", "off"]);
    assert!(out(&other).contains("\n-log = info\n+log = off\n"));

    let edited = tree.root.path().join(&unit[1..]);
    let text = fs::read_to_string(&edited).unwrap();
    fs::write(&edited, text.clone() + "Nice=1\n").unwrap();
    for arguments in [&["--yes"][..], &["--yes", "--undo"]] {
        let refused = tree.setup("nginx", arguments);
        assert_eq!(refused.status.code(), Some(1));
        assert!(err(&refused).contains(unit) && err(&refused).contains("--force"));
    }
    assert_eq!(tree.files(), after);
    let undone = tree.setup("nginx", &["--yes", "--undo", "--force"]);
    assert!(out(&undone).contains(&format!("removed {unit}\n")));
    assert!(out(&undone).contains("\n-Nice=1\n"));
    assert_eq!(tree.files(), before);
    assert!(!edited.parent().unwrap().exists());
    let nothing = tree.setup("nginx", &["--undo"]);
    assert_eq!(nothing.status.code(), Some(0));
}

#[test]
fn on_a_terminal_it_asks() {
    let tree = Tree::new();
    for (answer, status, files) in [("\n", 1, 0), ("n\n", 1, 0), ("y\n", 0, 2)] {
        let ours = match openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY) {
            Ok(ours) => ours,
            Err(error) => {
                println!("SKIP: no pseudo-terminals: {error}");
                return;
            }
        };
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let theirs = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        // It waits in the terminal until the question comes.
        fs::File::from(ours.try_clone().unwrap())
            .write_all(answer.as_bytes())
            .unwrap();
        let mut setup = tree.command("haproxy", &[]);
        setup.stdin(theirs.try_clone().unwrap()).stdout(theirs);
        assert_eq!(setup.output().unwrap().status.code(), Some(status));
        assert_eq!(tree.files().len(), files, "{answer:?}");
    }
}

#[test]
fn what_cannot_work_is_said() {
    let tree = Tree::new();
    let unknown = tree.setup("caddy", &[]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(err(&unknown).contains("nginx, haproxy, apache2, lighttpd"));
    let wrong = tree.setup("haproxy", &["--operations", "rsa,dsa"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(err(&wrong).contains("`dsa` is none of rsa, ecdsa"));
    let twice = tree.put(
        "etc/systemd/system/lighttpd.service.d/a.conf",
        "[Service]\nEnvironment=LD_PRELOAD=/x.so\n",
    );
    let refused = tree.setup("lighttpd", &["--yes"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains(&format!("{}:2 sets or unsets LD_PRELOAD", twice.display())));
    assert_eq!(tree.files(), std::slice::from_ref(&twice));
    let shown = tree.setup("lighttpd", &["--print"]);
    assert!(out(&shown).contains(&format!("{}:2", twice.display())));
    assert!(out(&shown).contains("+Environment=LD_PRELOAD="));
}

#[test]
fn a_folder_without_permission_is_named_with_the_way_out() {
    let tree = Tree::new();
    let mut setup = tree.command("haproxy", &["--yes"]);
    fs::create_dir(tree.root.path().join("etc")).unwrap();
    for (folder, mode) in [
        (tree.parts.path().to_owned(), 0o755),
        (tree.root.path().to_owned(), 0o755),
        (tree.root.path().join("etc"), 0o555),
    ] {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    // Root may write everywhere.
    if rustix::process::geteuid().is_root() {
        setup.uid(65534).gid(65534);
    }
    let refused = match setup.output() {
        Ok(refused) => refused,
        Err(error) => {
            println!("SKIP: {error}: other users cannot run the program in the folder of the build");
            return;
        }
    };
    assert_eq!(refused.status.code(), Some(1));
    let file = "/etc/widelane/openssl-haproxy.cnf: Permission denied";
    assert!(err(&refused).contains(file), "{refused:?}");
    assert!(err(&refused).contains("sudo"));
}

#[test]
fn openssl_loads_both_providers_and_keeps_the_settings_of_the_system() {
    let Some(provider) = provider() else {
        println!("SKIP: the provider is not built; cargo build -p widelane-openssl");
        return;
    };
    if !runs_openssl() {
        println!("SKIP: no openssl 3; install openssl");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // As on Debian and Ubuntu, and as on Red Hat, where the providers are listed already.
    for system in [SYSTEM, LISTED] {
        let (kept, config) = (folder.path().join("openssl.cnf"), folder.path().join("x.cnf"));
        fs::write(&kept, system).unwrap();
        let mut setup = under_test::widelane();
        setup.args(["setup", "haproxy", "--env", "--force", "--operations", "rsa,ecdh"]);
        setup.args(["--backend", "auto", "--log", "off"]);
        setup.arg("--provider").arg(&provider);
        setup.arg("--system-config").arg(&kept).arg("--config").arg(&config);
        let printed = setup.output().unwrap();
        assert_eq!(
            out(&printed),
            format!("OPENSSL_CONF={}\n", config.display()),
            "{printed:?}"
        );
        let beside = folder.path().join("openssl-calibration");
        let text = fs::read_to_string(&config).unwrap();
        let line = format!("\ncalibration = {}\n", beside.display());
        assert!(text.contains(&line), "{text}");
        let openssl = |arguments: &[&str]| {
            let mut openssl = Command::new("openssl");
            let output = openssl.args(arguments).env("OPENSSL_CONF", &config).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            out(&output)
        };
        let providers = openssl(&["list", "-providers"]);
        assert!(providers.contains("name: OpenSSL Default Provider"), "{providers}");
        assert!(providers.contains("name: Widelane"), "{providers}");
        assert_eq!(providers.matches("status: active").count(), 2, "{providers}");
        // From the section that also has MinProtocol: without it the list is longer.
        let suites = openssl(&["ciphers"]);
        assert_eq!(suites, "TLS_AES_256_GCM_SHA384:AES256-GCM-SHA384\n");
    }
}

#[test]
fn a_program_that_is_not_in_the_table_is_set_up_by_its_unit() {
    let Some(openssl) = openssl() else {
        println!("SKIP: no openssl 3; install openssl");
        return;
    };
    let tree = Tree::new();
    let drop_in = "etc/systemd/system/own@1.service.d/widelane.conf";
    tree.put(
        "lib/systemd/system/own@.service",
        "[Service]\nExecStart=/usr/sbin/own %i\n",
    );
    tree.put("usr/sbin/own", "");
    fs::copy(openssl, tree.root.path().join("usr/sbin/own")).unwrap();
    let before = tree.files();
    let shown = tree.setup("--unit=own@1.service", &["--print"]);
    for part in [
        "+++ /etc/widelane/openssl-own@1.cnf\n",
        "\n+# Written by `widelane setup --unit own@1`; `widelane setup --unit own@1 --undo` removes it.\n",
        &format!("\n+++ /{drop_in}\n"),
        "\nThis program was not tried with Widelane. ",
    ] {
        assert!(out(&shown).contains(part), "{part}: {shown:?}");
    }
    // Only who has looked at the program gives it the library that suspends handshakes.
    let preloads = "\n+Environment=LD_PRELOAD=";
    assert!(!out(&shown).contains(preloads));
    let shown = tree.setup("--unit=own@1", &["--print", "--suspend"]);
    assert!(out(&shown).contains(preloads), "{shown:?}");
    let silent = tree.setup("--unit=own@1", &[]);
    assert_eq!(silent.status.code(), Some(2));
    assert_eq!(tree.files(), before);
    let written = tree.setup("--unit=own@1", &["--yes"]);
    assert!(out(&written).contains(&format!("wrote /{drop_in}\n")), "{written:?}");
    assert_eq!(tree.files().len(), before.len() + 2);
    let undone = tree.setup("--unit=own@1", &["--yes", "--undo"]);
    assert!(out(&undone).contains(&format!("removed /{drop_in}\n")), "{undone:?}");
    assert_eq!(tree.files(), before);
}

#[test]
fn nothing_is_written_for_a_program_that_is_not_known_to_use_openssl() {
    let tree = Tree::new();
    for (unit, program) in [("script", "/usr/sbin/script"), ("gone", "/usr/sbin/gone")] {
        let text = format!("[Service]\nExecStart={program}\n");
        tree.put(&format!("etc/systemd/system/{unit}.service"), &text);
    }
    tree.put("usr/sbin/script", "#!/bin/sh\n");
    let before = tree.files();
    for (unit, why) in [
        ("script", "usr/sbin/script is a script. `widelane setup --inspect PID`"),
        ("gone", "gone.service starts no program that is here"),
        ("absent", "there is no unit absent.service here"),
    ] {
        let unit = format!("--unit={unit}");
        let refused = tree.setup(&unit, &["--yes"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(err(&refused).contains(why), "{refused:?}");
        let shown = tree.setup(&unit, &["--print"]);
        assert!(out(&shown).contains(why), "{shown:?}");
        assert_eq!(tree.files(), before);
    }
    let wrong = tree.setup("--unit=a/b", &["--yes"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(err(&wrong).contains("is no name of a service"), "{wrong:?}");
    let forced = tree.setup("--unit=script", &["--yes", "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    assert_eq!(tree.files().len(), before.len() + 2);
}

#[test]
fn a_program_of_the_table_says_what_to_expect() {
    let tree = Tree::new();
    tree.put(
        "lib/systemd/system/redis-server.service",
        "[Service]\nExecStart=/bin/redis-server\nNoExecPaths=/\nExecPaths=/usr/lib\n",
    );
    let redis = tree.setup("redis", &["--print"]);
    for part in [
        "+++ /etc/systemd/system/redis-server.service.d/widelane.conf\n",
        "\n+Environment=LD_PRELOAD=",
        "\nTo expect of Redis: single event loop, epoll: ",
        "redis-server.service lets no code be loaded from ",
    ] {
        assert!(out(&redis).contains(part), "{part}: {redis:?}");
    }
    let postfix = tree.setup("postfix", &["--print"]);
    let said = out(&postfix);
    assert!(said.contains("a process for each connection: provider only"), "{said}");
    assert!(
        said.contains("import_environment") && !said.contains("LD_PRELOAD="),
        "{said}"
    );
}

#[test]
fn a_running_program_is_inspected_and_nothing_else_is_done() {
    let inspect = |arguments: &[&str]| {
        let mut setup = under_test::widelane();
        setup.args(["setup", "--inspect"]).args(arguments);
        setup.output().unwrap()
    };
    let own = std::process::id().to_string();
    let found = inspect(&[&own]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    for part in [
        &*format!("Process {own}: setup-"),
        "\nIt names no TLS library; ",
        "\nThreads: ",
        "\nThis program was not tried with Widelane: ",
    ] {
        assert!(out(&found).contains(part), "{part}: {found:?}");
    }
    let missing = inspect(&["4294967295"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("there is no process 4294967295"), "{missing:?}");
    for wrong in [&["nginx"][..], &[&own, "--yes"], &[&own, "--undo"], &[&own, "nginx"]] {
        assert_eq!(inspect(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let nothing = under_test::widelane().arg("setup").output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
}

/// A folder in place of `/`, and libraries that are only looked for.
struct Tree {
    root: tempfile::TempDir,
    parts: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self {
            root: tempfile::tempdir().unwrap(),
            parts: tempfile::tempdir().unwrap(),
        };
        for (name, symbol) in [
            ("provider.so", "OSSL_provider_init"),
            ("shim.so", "widelane_suspension_1"),
        ] {
            let content = format!("\x7fELF {symbol}");
            fs::write(tree.parts.path().join(name), content).unwrap();
        }
        tree
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn setup(&self, server: &str, arguments: &[&str]) -> Output {
        self.command(server, arguments).output().unwrap()
    }

    fn command(&self, server: &str, arguments: &[&str]) -> Command {
        let mut command = under_test::widelane();
        command
            .args(["setup", server, "--root"])
            .arg(self.root.path())
            .args(arguments);
        if !arguments.contains(&"--undo") {
            let part = |name: &str| self.parts.path().join(name);
            command.arg("--provider").arg(part("provider.so"));
            command.arg("--shim").arg(part("shim.so"));
        }
        command
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = below(self.root.path());
        files.sort();
        files
    }
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(below(&path)),
            false => files.push(path),
        }
    }
    files
}

/// Place to which cargo builds the provider for tests.
fn provider() -> Option<PathBuf> {
    let program = Path::new(under_test::PROGRAM);
    let path = program.with_file_name("deps/libwidelane_openssl.so");
    path.exists().then_some(path)
}

/// The program `openssl` itself, if it is one of OpenSSL 3.
fn openssl() -> Option<PathBuf> {
    let path = PathBuf::from("/usr/bin/openssl");
    (runs_openssl() && path.exists()).then_some(path)
}

fn runs_openssl() -> bool {
    let version = Command::new("openssl").arg("version").output();
    version.is_ok_and(|version| out(&version).starts_with("OpenSSL 3"))
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SYSTEM: &str = "\
config_diagnostics = 1
openssl_conf = openssl_init # where it begins
[openssl_init]
ssl_conf = ssl_sect
[ssl_sect]
system_default = system_default_sect
[system_default_sect]
MinProtocol = TLSv1.2
CipherString = AES256-GCM-SHA384
Ciphersuites = TLS_AES_256_GCM_SHA384
";

const LISTED: &str = "\
openssl_conf = openssl_init
[openssl_init]
providers = provider_sect
ssl_conf = ssl_module
alg_section = evp_properties
[evp_properties]
[provider_sect]
default = default_sect
[default_sect]
# activate = 1
[ssl_module]
system_default = crypto_policy
[crypto_policy]
MinProtocol = TLSv1.2
CipherString = AES256-GCM-SHA384
Ciphersuites = TLS_AES_256_GCM_SHA384
";
