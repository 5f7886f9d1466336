//! The functions that stand in for OpenSSL's and the C library's. Each does what the original does,
//! except for handshakes that are suspended.
//!
//! A stand-in calls the original itself, outside of everything that this library does before and after: what
//! fails here is left to the original, and a thread that is cancelled in the original unwinds through
//! functions that allow it.

#[allow(unsafe_code)]
mod descriptors;
#[allow(unsafe_code)]
mod libssl;
#[allow(unsafe_code)]
mod macros;
#[allow(unsafe_code)]
mod polls;
#[allow(unsafe_code)]
mod settings;

use std::ffi::{CStr, c_void};

/// The address of the function that stands in for the one with this name.
pub(crate) fn stand_in(name: &CStr) -> Option<*const c_void> {
    let families = [
        libssl::stand_in,
        settings::stand_in,
        polls::stand_in,
        descriptors::stand_in,
    ];
    families.iter().find_map(|family| family(name))
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::ptr;

    use libc::{epoll_event, pollfd};

    use super::descriptors::{close, dup, epoll_ctl, fcntl};
    use super::libssl::SSL_free;
    use super::polls::{NOW, epoll_pwait, epoll_pwait2, epoll_wait, poll};
    use crate::boundary::tests::failing;

    #[test]
    fn a_stand_in_that_fails_leaves_the_call_to_the_original() {
        let mut event = epoll_event {
            events: libc::EPOLLOUT as u32,
            u64: 7,
        };
        let place = &raw mut event;
        // SAFETY: descriptors of the test's own, and places for what is answered.
        unsafe {
            let instance = libc::epoll_create1(0);
            let pipe = libc::eventfd(0, 0);
            failing(|| {
                assert_eq!(epoll_ctl(instance, libc::EPOLL_CTL_ADD, pipe, place), 0);
                assert_eq!(epoll_wait(instance, place, 1, 0), 1);
                assert_eq!(epoll_pwait(instance, place, 1, 0, ptr::null()), 1);
                assert_eq!(epoll_pwait2(instance, place, 1, &NOW, ptr::null()), 1);
                let mut watched = pollfd {
                    fd: pipe,
                    events: libc::POLLOUT,
                    revents: 0,
                };
                assert_eq!(poll(&raw mut watched, 1, 0), 1);
                let copy = dup(pipe);
                assert!(copy >= 0 && fcntl(copy, libc::F_GETFD, 0) == 0);
                assert_eq!((close(copy), close(copy)), (0, -1));
                SSL_free(ptr::null_mut());
            });
            assert_eq!((close(pipe), close(instance)), (0, 0));
        }
    }
}
