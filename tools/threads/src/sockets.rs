//! TCP sockets: who listens, and what waits in them.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::proc::Proc;
use crate::socket_diag;

/// A TCP socket that listens, or a connection that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The port on this side.
    pub port: u16,
    /// Its number, which descriptors name. 0: the program has not accepted the connection yet.
    pub inode: u64,
    /// True if it listens.
    pub listens: bool,
    /// Connections that the program has not accepted yet, if it listens; else bytes that it has not
    /// read yet.
    pub waiting: u32,
}

impl Proc {
    /// The TCP sockets of the network namespace of a process, which may be those of other processes,
    /// too. `None` if it has ended, or the kernel does not tell.
    pub fn sockets(&self, pid: u32) -> Option<Vec<Socket>> {
        let here = self.network(std::process::id())? == self.network(pid)?;
        let namespace = match here {
            true => None,
            false => Some(widelane_files::open_kernel(self.root().join(format!("{pid}/ns/net"))).ok()?),
        };
        socket_diag::sockets(namespace).ok()
    }

    /// The network namespace of a process, by its number.
    pub fn network(&self, pid: u32) -> Option<u64> {
        self.number_behind(&format!("{pid}/ns/net"), "net:[")
    }

    /// The number of the socket behind a descriptor. `None` if that is no socket, is closed, or may not
    /// be looked at.
    pub fn socket_behind(&self, pid: u32, descriptor: u32) -> Option<u64> {
        self.number_behind(&format!("{pid}/fd/{descriptor}"), "socket:[")
    }

    /// The number in a link like `socket:[4711]`.
    fn number_behind(&self, link: &str, before: &str) -> Option<u64> {
        let link = fs::read_link(self.root().join(link)).ok()?;
        let number = link.as_os_str().as_bytes().strip_prefix(before.as_bytes())?;
        let number = number.strip_suffix(b"]")?;
        std::str::from_utf8(number).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_waits_in_sockets_is_told() {
        let proc = Proc::here();
        let own = std::process::id();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut first = TcpStream::connect(address).unwrap();
        let _second = TcpStream::connect(address).unwrap();
        let of_port = || -> Vec<Socket> {
            let all = proc.sockets(own).expect("sockets").into_iter();
            all.filter(|one| one.port == address.port()).collect()
        };
        let listening = |sockets: &[Socket]| *sockets.iter().find(|one| one.listens).unwrap();
        let inode = proc.socket_behind(own, listener.as_raw_fd().cast_unsigned());
        let found = listening(&of_port());
        assert_eq!((Some(found.inode), found.waiting), (inode, 2));
        first.write_all(b"hello").unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let sockets = of_port();
        assert_eq!(listening(&sockets).waiting, 1);
        let inode = proc.socket_behind(own, accepted.as_raw_fd().cast_unsigned());
        let found = sockets.iter().find(|one| Some(one.inode) == inode).unwrap();
        assert_eq!((found.listens, found.waiting), (false, 5));
        let other = sockets.iter().find(|one| one.inode == 0).unwrap();
        assert_eq!((other.listens, other.waiting), (false, 0), "not accepted");
        assert!(proc.network(own).is_some());
    }

    #[test]
    fn sockets_of_another_namespace_are_told() {
        let mut command = std::process::Command::new("unshare");
        let sleeps = command.args(["--net", "sleep", "60"]).spawn();
        let mut other = sleeps.expect("unshare of util-linux");
        let proc = Proc::here();
        let (own, pid) = (std::process::id(), other.id());
        // Until it has moved, it is in this one; without the right to move, it ends.
        while proc.network(pid) == proc.network(own) && other.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        if other.try_wait().unwrap().is_some() {
            return println!("SKIP: only root may make a network namespace");
        }
        let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets = proc.sockets(pid);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(sockets, Some(vec![]));
    }

    #[test]
    fn what_is_no_socket_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let proc = Proc::at(folder.path());
        assert_eq!(proc.sockets(7), None);
        fs::create_dir_all(folder.path().join("7/fd")).unwrap();
        for (name, target) in [("1", "/dev/null"), ("2", "socket:[x]"), ("3", "socket:[5")] {
            symlink(target, folder.path().join("7/fd").join(name)).unwrap();
        }
        for descriptor in 0..4 {
            assert_eq!(proc.socket_behind(7, descriptor), None);
        }
    }
}
