//! Finds the program of a server, and the way of Widelane into it.

use std::path::Path;

use widelane_setup::{Running, Waits};
use widelane_text::named;
use widelane_threads::{Code, Proc, RegularFile};

use crate::image::contains;

named! {
    /// The library that does TLS in a program.
    pub enum Tls {
        /// OpenSSL 3.0 or later, as a shared library: it loads providers.
        OpenSsl = "OpenSSL 3 or later, as a shared library",
        /// OpenSSL 1.1 or older, as a shared library.
        OldOpenSsl = "OpenSSL 1, as a shared library",
        /// OpenSSL inside the program.
        StaticOpenSsl = "OpenSSL inside the program",
        /// BoringSSL or AWS-LC.
        BoringSsl = "BoringSSL or AWS-LC",
        /// rustls, with AWS-LC.
        Rustls = "rustls with AWS-LC",
        /// GnuTLS.
        GnuTls = "GnuTLS",
        /// NSS.
        Nss = "NSS",
        /// Go's own.
        Go = "Go's crypto/tls",
        /// One that a user's table names.
        Other = "a library of your table of functions",
    }
}

impl Tls {
    /// Chooses by the family of the functions that were seen, the names of the files that the process has mapped, and
    /// whether rustls is in the program.
    fn of(library: &str, files: &[String], rustls: bool) -> Self {
        let version = |file: &String| {
            let rest = file.strip_prefix("libcrypto.so.")?;
            rest.split('.').next()?.parse::<u32>().ok()
        };
        match library {
            "openssl" => match files.iter().find_map(version) {
                Some(3..) => Self::OpenSsl,
                Some(_) => Self::OldOpenSsl,
                None => Self::StaticOpenSsl,
            },
            "boringssl" if rustls => Self::Rustls,
            "boringssl" => Self::BoringSsl,
            "gnutls" => Self::GnuTls,
            "nss" => Self::Nss,
            "go" => Self::Go,
            _ => Self::Other,
        }
    }
}

named! {
    /// Way to put Widelane into a server.
    pub enum WayIn {
        /// The provider is there already.
        Loaded = "loaded",
        /// `widelane setup`.
        Setup = "setup",
        /// The provider crate for rustls.
        Rustls = "rustls",
        /// `widelane serve` in front.
        Terminator = "terminator",
    }
}

/// A program that serves TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name of the program, and its row of the table of `setup`.
    pub running: Running,
    /// TLS library of the program.
    pub tls: Tls,
    /// True if the program has loaded Widelane's provider.
    pub loaded: bool,
}

impl Program {
    /// Program of a process in which functions of this family of libraries were seen.
    pub(super) fn of(proc: &Proc, pid: u32, library: &str, loaded: bool) -> Self {
        let code = Code::of(pid).ok();
        let mut files = Vec::new();
        if let Some(code) = &code {
            let paths = code.files().into_iter().filter_map(|one| one.path.as_ref());
            let names = paths.filter_map(|path| path.file_name());
            files.extend(names.map(|name| name.to_string_lossy().into_owned()));
        }
        let rustls = library == "boringssl" && has_rustls(&proc.program(pid));
        Self {
            running: Running::of(proc, pid),
            tls: Tls::of(library, &files, rustls),
            loaded,
        }
    }

    /// Way to put Widelane into this program.
    pub fn way_in(&self) -> WayIn {
        if self.loaded {
            return WayIn::Loaded;
        }
        match self.tls {
            Tls::OpenSsl => WayIn::Setup,
            Tls::Rustls => WayIn::Rustls,
            _ => WayIn::Terminator,
        }
    }

    /// Returns whether each thread of the program computes handshakes in a loop of its own. Else its threads wait for
    /// each other, or nothing is known of it.
    pub(super) fn has_loops(&self) -> bool {
        matches!(self.running.waits(), Some(Waits::EventLoop | Waits::Asynchronous))
    }

    /// Returns whether Widelane's provider would let the program's threads sleep until their passes have ended.
    pub(super) fn has_waiting_threads(&self) -> bool {
        self.way_in() == WayIn::Setup && self.running.waits() == Some(Waits::Threads)
    }

    /// Returns whether its handshakes can share no passes, whatever the load.
    pub(super) fn shares_nothing(&self) -> bool {
        self.way_in() == WayIn::Setup && self.running.waits() == Some(Waits::Alone)
    }
}

/// Returns whether a program was built with rustls: the paths of rustls's sources are in messages of the program.
fn has_rustls(exe: &Path) -> bool {
    let file = RegularFile::named(exe).and_then(|file| file.read(MOST_OF_A_PROGRAM));
    file.is_ok_and(|bytes| contains(&bytes, RUSTLS))
}

const RUSTLS: &[u8] = b"/rustls-0.";
const MOST_OF_A_PROGRAM: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, library: &str, files: &[&str], rustls: bool) -> Program {
        let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
        Program {
            running: Running::named(Some(name.to_owned()), String::new()),
            tls: Tls::of(library, &files, rustls),
            loaded: false,
        }
    }

    #[test]
    fn each_kind_of_server_has_its_way_in() {
        let three = &["libssl.so.3", "libcrypto.so.3"][..];
        for (name, library, files, rustls, way) in [
            ("nginx", "openssl", three, false, WayIn::Setup),
            ("haproxy", "openssl", three, false, WayIn::Setup),
            ("httpd", "openssl", three, false, WayIn::Setup),
            ("apache2", "openssl", three, false, WayIn::Setup),
            ("lighttpd", "openssl", three, false, WayIn::Setup),
            ("nginx", "openssl", &["libcrypto.so.4"], false, WayIn::Setup),
            ("nginx", "openssl", &["libcrypto.so.1.1"], false, WayIn::Terminator),
            ("nginx", "openssl", &["libcrypto.so.1.0.2"], false, WayIn::Terminator),
            ("nginx", "openssl", &["libc.so.6"], false, WayIn::Terminator),
            // The upstream's OpenSSL is there too, and something else does TLS.
            ("nginx", "boringssl", three, false, WayIn::Terminator),
            ("stunnel4", "openssl", three, false, WayIn::Setup),
            ("own", "openssl", three, false, WayIn::Setup),
            ("caddy", "go", &[], false, WayIn::Terminator),
            ("lighttpd", "gnutls", &["libgnutls.so.30"], false, WayIn::Terminator),
            ("proxy", "boringssl", &[], true, WayIn::Rustls),
            ("envoy", "boringssl", &[], false, WayIn::Terminator),
            ("thing", "mine", &[], false, WayIn::Terminator),
        ] {
            let program = program(name, library, files, rustls);
            assert_eq!(program.way_in(), way, "{program:?}");
            let loaded = Program {
                loaded: true,
                ..program
            };
            assert_eq!(loaded.way_in(), WayIn::Loaded);
        }
    }

    #[test]
    fn how_a_program_waits_is_what_setup_says() {
        let three = &["libcrypto.so.3"];
        for (name, loops, threads, nothing) in [
            ("nginx", true, false, false),
            ("haproxy", true, false, false),
            ("redis-server", true, false, false),
            ("apache2", false, true, false),
            ("stunnel4", false, true, false),
            ("smtpd", false, false, true),
            ("own", false, false, false),
        ] {
            let program = program(name, "openssl", three, false);
            assert_eq!(program.has_loops(), loops, "{name}");
            assert_eq!(program.has_waiting_threads(), threads, "{name}");
            assert_eq!(program.shares_nothing(), nothing, "{name}");
        }
        // Another library does its TLS.
        let old = program("smtpd", "openssl", &["libcrypto.so.1.1"], false);
        assert!(!old.shares_nothing());
    }

    #[test]
    fn rustls_is_known_by_the_paths_of_its_sources() {
        assert!(contains(b"\0x/rustls-0.23.31/src/conn.rs\0", RUSTLS));
        assert!(!contains(b"librustls", RUSTLS));
        assert!(!contains(b"", RUSTLS));
    }

    #[test]
    fn a_process_is_known_by_its_program() {
        let own = Program::of(&Proc::here(), std::process::id(), "openssl", true);
        let exe = std::env::current_exe().unwrap();
        assert_eq!(own.running.name, exe.file_name().unwrap().to_string_lossy());
        assert_eq!(own.tls, Tls::StaticOpenSsl);
        assert!(own.loaded);
    }
}
