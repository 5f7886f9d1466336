//! The functions that can be traced: rows of `functions.toml`.

use serde::{Deserialize, Serialize};
use widelane_text::named;

/// A function that can be traced: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// The family of libraries it belongs to: `openssl`, `gnutls`, `go`…
    pub library: String,
    /// The symbol. One `*` stands for any text, as in `mbx_*_mb8`; `*_` at its beginning also for no
    /// text at all: `*_RSA_sign` means `RSA_sign`, too. The `*` of Go's `(*` stands for itself.
    pub symbol: String,
    /// Role of the function.
    pub role: Role,
    /// Name that is printed for the function, as `rsa sign`; `{size}` is replaced by a name for the size.
    #[serde(default)]
    pub name: Option<String>,
    /// Side of a [`Role::Handshake`]: client or server, if the function determines it.
    #[serde(default)]
    pub side: Option<Side>,
    /// Index of the argument that names the connection or context, from 0. Go's arguments are counted in registers:
    /// rax, rbx, rcx, rdi, rsi, r8, r9, r10, r11.
    #[serde(default)]
    pub object: u8,
    /// The argument that is a place for the result. A call in which it is NULL only asks how large
    /// the result is, and is no operation.
    #[serde(default)]
    pub output: Option<u8>,
    /// Place of the size.
    #[serde(default)]
    pub size: Option<Size>,
    /// Meaning of return values.
    #[serde(default)]
    pub returns: Returns,
    /// The symbol of a function that a handshake calls around this one, or that this one calls for all
    /// its work. Where a file has both, [`Want::handshakes_only`](crate::Want::handshakes_only) probes
    /// only that one.
    #[serde(default)]
    pub instead: Option<String>,
    /// The symbol of a function that returns whether a handshake is under way on the object. If one is,
    /// this function goes on with it.
    #[serde(default)]
    pub state: Option<String>,
}

/// Role of a function, as far as the views distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Goes on with a handshake until it is done or waits for the peer.
    Handshake,
    /// Says why the last call on a connection did not succeed (`SSL_get_error`).
    Error,
    /// Ends a connection (`SSL_free`).
    Free,
    /// Reads data of the application (`SSL_read`).
    Read,
    /// Writes data of the application (`SSL_write`).
    Write,
    /// A signature with a private key.
    Sign,
    /// The verification of a signature or of a chain of certificates.
    Verify,
    /// Makes a key pair of a key exchange.
    Generate,
    /// Computes the secret of a key exchange.
    Derive,
    /// Encapsulates a secret.
    Encapsulate,
    /// Decapsulates or decrypts a secret.
    Decapsulate,
    /// A pass of a multi-buffer library; its size is the number of operations.
    Pass,
    /// Looks whether passes have ended (`multibuff_poll`).
    Poll,
    /// A server's own function around handshakes, which calls those of the library.
    Around,
    /// The dynamic linker tells debuggers that it has loaded a library, or unloaded one.
    Load,
}

impl Role {
    /// Roles of the parts of a handshake.
    pub const PARTS: [Self; 7] = [
        Self::Handshake,
        Self::Sign,
        Self::Verify,
        Self::Generate,
        Self::Derive,
        Self::Encapsulate,
        Self::Decapsulate,
    ];

    /// Roles of the parts, and of functions that report how handshakes end.
    pub fn of_handshakes() -> Vec<Self> {
        [&[Self::Error, Self::Free][..], &Self::PARTS].concat()
    }

    /// Returns whether a call that has not succeeded is repeated when the peer has answered.
    pub fn is_called_again(self) -> bool {
        matches!(self, Self::Handshake | Self::Read | Self::Write)
    }
}

named! {
    /// Client or server.
    #[derive(Hash, Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Side {
        /// The client.
        Client = "client",
        /// The server.
        Server = "server",
    }
}

/// Place of a function's size: read when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// The return value, if it is positive.
    Result,
    /// An argument, from 0.
    Argument(u8),
    /// A `size_t` behind an argument that is a pointer.
    SizeBehind(u8),
    /// An `unsigned int` behind an argument that is a pointer.
    IntBehind(u8),
    /// A result of a Go function, from 0, in the registers of its arguments: the length of a slice
    /// is in the register after its pointer's.
    GoResult(u8),
    /// Number of pointers that are not NULL, among eight behind an argument: the operations of a pass.
    PointersBehind(u8),
}

/// Meaning of return values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Returns {
    /// OpenSSL's: 1 is success; 0 or less is a failure, which [`Role::Error`] explains.
    #[default]
    One,
    /// 0 is success; GnuTLS: -28 and -52 are "again"; other negative values are failures.
    Zero,
    /// Any value is success.
    Any,
    /// A pointer; NULL is a failure.
    Pointer,
    /// Go: the result register, from 0 (rax, rbx, rcx, rdi, rsi, r8, r9, r10, r11), with the type of
    /// the error. 0, which is nil, is success. The result of the call is what is in that register.
    GoError(u8),
}
