//! The library that suspends TLS handshakes in servers with a synchronous event loop (nginx, lighttpd, Redis): it
//! stands between the server and OpenSSL, preloaded or put into the server's imports by the provider (`imports`).
//!
//! A provider alone cannot give other connections a turn, because it cannot return into the event
//! loop. This library runs the server's handshake call on a stack of its own. When the provider
//! waits for a pass, that stack is left, and the call returns that it wants to read, as if the peer's bytes
//! had not come yet. The decision falls where the server waits (`epoll_wait`, `poll`, `select` and their siblings):
//! after each new job the library looks at the sockets once; when that brings no further job, the passes run, and the
//! wait reports the connections as readable that can go on.
//!
//! What it is not: it has no cryptography and decides nothing about passes. It meets the provider in
//! two tables of functions (`table`, `provider`). Without the provider, every call goes to the original.
//!
//! Only what is understood is suspended: a server's first handshake, on a socket without a buffer in
//! between, for which this thread waits by a function that we stand in for (`waits`), and in no runtime that knows the
//! bounds of its stacks (`runtimes`). The first call for a
//! connection that was just accepted and is not waited for yet returns that nothing has come. Everything else is the
//! original's.
//!
//! Any program may get the library, so that none may notice it. Three rules follow:
//!
//! - Before a call that changes what a suspended handshake uses, and before a thread sleeps, the handshake goes on as
//!   far as it can (`handshakes::settle`, `handshakes::go_on_unasked`).
//! - Nothing is asked of thread-locals that are gone, and no lock is taken where none may be
//!   (`registrations`, `forks`); calls of signal handlers are the originals' (`signals`).
//! - A mistake of ours ends at one boundary, and the original does the call (`boundary`).
//!
//! Where to start: `stand_ins` has the functions that stand in for the originals, `handshakes` what is suspended,
//! `waits` what its server waits for, `event_loop` when passes run, `overload` when the kernel's queue is kept short,
//! `tests/uses` what programs do.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod backlog;
mod boundary;
mod connections;
mod descriptor_set;
#[allow(unsafe_code)]
mod errno;
#[allow(unsafe_code)]
mod established;
#[allow(unsafe_code)]
mod event_loop;
mod events;
#[allow(unsafe_code)]
mod forks;
mod handshakes;
#[allow(unsafe_code)]
mod imports;
#[allow(unsafe_code)]
mod originals;
mod overload;
#[allow(unsafe_code)]
mod process;
mod provider;
mod registrations;
mod rings;
mod runtimes;
#[allow(unsafe_code)]
mod signals;
mod stand_ins;
mod sync;
#[allow(unsafe_code)]
mod table;
mod wait_calls;
mod waits;
