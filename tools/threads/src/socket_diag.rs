//! TCP sockets, as the kernel tells them by `sock_diag(7)`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, TCP_LISTEN};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::sockets::Socket;

/// The sockets of a network namespace, or without one of this thread's. To search the table of connections
/// takes the kernel milliseconds, so it is done only for families in which some socket listens.
pub(crate) fn sockets(namespace: Option<File>) -> io::Result<Vec<Socket>> {
    let kernel = match namespace {
        Some(namespace) => connect_in(namespace)?,
        None => connect()?,
    };
    let mut sockets = Vec::new();
    for id in [SocketId::new_v4(), SocketId::new_v6()] {
        let before = sockets.len();
        ask(&kernel, id.clone(), StateFlags::LISTEN, &mut sockets)?;
        if sockets.len() > before {
            ask(&kernel, id, StateFlags::ESTABLISHED, &mut sockets)?;
        }
    }
    Ok(sockets)
}

fn connect() -> io::Result<netlink_sys::Socket> {
    let socket = netlink_sys::Socket::new(NETLINK_SOCK_DIAG)?;
    socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// A socket tells of the namespace in which it was made, in all threads. The thread that makes it ends, so
/// that none has to return to its own namespace.
fn connect_in(namespace: File) -> io::Result<netlink_sys::Socket> {
    let make = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        connect()
    };
    let thread = thread::Builder::new().name("namespace".to_owned()).spawn(make)?;
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
}

/// Adds the sockets of a family that are in one of the states.
fn ask(
    kernel: &netlink_sys::Socket,
    socket_id: SocketId,
    states: StateFlags,
    sockets: &mut Vec<Socket>,
) -> io::Result<()> {
    kernel.send(&request(socket_id, states), 0)?;
    let mut buffer = vec![0; LARGEST_ANSWER];
    loop {
        let size = kernel.recv(&mut &mut buffer[..], 0)?;
        let mut rest = buffer.get(..size).unwrap_or_default();
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest);
            let message = message.map_err(io::Error::other)?;
            let length = message.header.length as usize;
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(one)) => {
                    sockets.push(socket(&one));
                }
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
            // Messages begin at multiples of four.
            rest = rest.get(length.max(1).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn request(socket_id: SocketId, states: StateFlags) -> Vec<u8> {
    let family = match socket_id.source_address.is_ipv4() {
        true => AF_INET,
        false => AF_INET6,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states,
        socket_id,
    });
    let mut message = NetlinkMessage::new(header, request.into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn socket(answer: &InetResponse) -> Socket {
    let header = &answer.header;
    Socket {
        port: header.socket_id.source_port,
        inode: u64::from(header.inode),
        listens: header.state == TCP_LISTEN,
        waiting: header.recv_queue,
    }
}

/// The kernel fills at most 32 KiB at a time: `netlink_recvmsg` of Linux.
const LARGEST_ANSWER: usize = 64 << 10;
