//! The page of shared memory: a header, then a slot for each CPU.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::thread::futex::{self, Flags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::header::{Header, PageError};
use crate::memory::Memory;
use crate::slot::Slot;
use crate::sync::Ordering::Relaxed;

/// A mapped page. It stays mapped for as long as the process lives.
#[derive(Debug)]
pub struct Page {
    header: Header,
    memory: Memory,
}

impl Page {
    /// Makes the page of a brake. It is gone when the last process that has it open or mapped ends;
    /// its mode is 0600.
    ///
    /// # Errors
    ///
    /// When the system has no memory for it.
    pub fn create(header: Header) -> io::Result<(Self, File)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("widelane-brake", flags)?);
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let size = Header::size(header.cpus);
        rustix::fs::ftruncate(&file, size)?;
        rustix::io::pwrite(&file, &header.to_bytes(), 0)?;
        // From now on no program can make it shorter, so that no access to it fails.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let memory = Memory::map(file.as_fd(), size as usize, header.cpus)?;
        Ok((Self { header, memory }, file))
    }

    /// Maps the page that another process has made.
    ///
    /// # Errors
    ///
    /// When there is none, or it is no page of a brake.
    pub fn open(path: &Path) -> Result<Self, PageError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?;
        let size = rustix::fs::fstat(&file).map_err(io::Error::from)?.st_size;
        let size = u64::try_from(size).unwrap_or(0);
        // Other files than memory have no seals.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| PageError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(PageError::NotSealed);
        }
        let mut bytes = [0; Header::BYTES];
        let read = rustix::io::pread(&file, &mut bytes, 0).map_err(io::Error::from)?;
        if read < Header::BYTES {
            return Err(PageError::Size(size));
        }
        let header = Header::parse(&bytes, size)?;
        let memory = Memory::map(file.as_fd(), size as usize, header.cpus)?;
        Ok(Self { header, memory })
    }

    /// Header of the page.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The slot of a CPU, if the page has one.
    pub fn slot(&self, cpu: usize) -> Option<&Slot> {
        self.memory.slots().get(cpu)
    }
}

impl Slot {
    /// Wakes the brake of this CPU. If it is on the calling CPU, it runs before this returns.
    pub fn wake(&self) {
        self.woken().fetch_add(1, std::sync::atomic::Ordering::Release);
        // The call fails for no reason that could be handled here.
        let _ = futex::wake(self.woken(), Flags::empty(), 1);
    }

    /// Sleeps while [`Slot::woken`] has this value, at most until `until` in nanoseconds of the
    /// monotonic clock, if that is given.
    pub fn sleep(&self, woken: u32, until: Option<u64>) {
        let until = until.map(|ns| Timespec {
            tv_sec: (ns / NS) as i64,
            tv_nsec: (ns % NS) as _,
        });
        let any = std::num::NonZeroU32::MAX;
        if self.woken().load(Relaxed) == woken {
            let flags = Flags::empty();
            let _ = futex::wait_bitset(self.woken(), flags, woken, until.as_ref(), any);
        }
    }
}

/// The monotonic clock, in nanoseconds.
pub fn nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NS + now.tv_nsec as u64
}

const NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Kind;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    fn header() -> Header {
        Header {
            cpus: 3,
            brake: std::process::id(),
            model: "a model".to_owned(),
        }
    }

    fn path(file: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    #[test]
    fn two_mappings_are_one_page() {
        let (made, file) = Page::create(header()).expect("there is memory");
        let opened = Page::open(&path(&file)).expect("it is a page");
        assert_eq!(opened.header(), made.header());
        let _ = opened.slot(2).expect("it has three").begin(Kind::Heavy512, 5, 9);
        assert_eq!(made.slot(2).expect("it has three").look().begun[3], 5);
        assert_eq!(made.slot(1).expect("it has three").look().begun[3], 0);
        assert!(opened.slot(3).is_none());
        let mode = rustix::fs::fstat(&file).expect("it is open").st_mode;
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_that_are_no_page_are_refused() {
        let refused = |path: &Path| Page::open(path).expect_err("it is none").to_string();
        assert!(refused(Path::new("/no/such/file")).contains("cannot be opened"));
        assert!(refused(Path::new("/dev/null")).contains("not sealed"));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("test", flags).expect("memory"));
        rustix::io::pwrite(&file, &header().to_bytes(), 0).expect("writable");
        assert!(refused(&path(&file)).contains("not sealed"));
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealable");
        assert!(refused(&path(&file)).contains("128 bytes"));
    }

    #[test]
    fn a_wake_up_before_the_sleep_is_not_lost() {
        let (page, _file) = Page::create(header()).expect("there is memory");
        let slot = page.slot(0).expect("it has three");
        let woken = slot.woken().load(Relaxed);
        slot.wake();
        slot.sleep(woken, None);
        // And without one it ends at its time.
        let until = nanoseconds() + 1_000_000;
        slot.sleep(woken + 1, Some(until));
        assert!(nanoseconds() >= until);
    }
}
