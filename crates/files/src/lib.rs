//! One way to write and to read files, for programs that run as root in folders of other users.
//!
//! Who may write into a folder can lay a link there, a pipe without a reader, or a device, and can exchange
//! one for the other at any moment. So:
//!
//! - What is written becomes a new file with a random name, and takes the place of the old one in one step:
//!   [`replace`], [`create`]. Nothing that is there is opened, so a link or a device is replaced, and not
//!   followed.
//! - A path that the user named may be a pipe or a terminal: [`replace_named`], [`create_named`]. It must be
//!   that by itself, and not through a link.
//! - What is read is a regular file, bounded, and never waited for: [`read`] follows no link, [`open_named`]
//!   and [`read_named`] do.
//! - Files whose content decides what a program does are in a folder that only root and this user can change:
//!   [`folder`], [`check_folder`], [`read_trusted`].
//! - [`Root`] is a folder that stands for the whole system, such as an image: no link leads out of it.
//! - [`this_user`] names the user who may not open a file, for messages.
//! - [`kernel`] is for `/proc` and `/sys`, where no user can lay anything; [`cpuinfo`] reads one of its texts.
//!
//! The folder of a path is resolved once, and everything happens in that one.

#![forbid(unsafe_code)]

pub mod cpuinfo;
mod folder;
mod kernel;
mod named;
mod place;
mod read;
mod root;
mod user;

pub use folder::{check_folder, folder, is_untrusted, make_folder, read_trusted, replace_trusted, writable_by_others};
pub use kernel::{kernel, kernel_beginning, kernel_text, open_kernel, set_kernel};
pub use named::{Output, create_named, replace_named};
pub use place::{create, lock_file, remove, replace};
pub use read::{open_named, read, read_named};
pub use root::Root;
pub use user::this_user;
