//! The records that the programs in the kernel write: the structures of `tools/bpf/programs/trace.bpf.c`.

use crate::event::{Bytes, Direction, Stack};
use crate::marks::MOST_ARGUMENTS;

/// A record of the ring buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A call has returned; the function by its number.
    Call(RawCall),
    /// Bytes were read or written.
    Bytes(Bytes),
    /// A static probe was reached; its row by its number.
    Reached(RawReached),
    /// A process has ended.
    Exit(u32),
    /// A process was forked, by this parent.
    Fork(u32, u32),
    /// A process has executed another program.
    Exec(u32),
    /// A process has loaded a library, or unloaded one.
    Loaded(u32),
}

/// A call, with its function's number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawCall {
    pub(crate) function: u16,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
    pub(crate) stack: Stack,
    pub(crate) start: u64,
    pub(crate) wall: u64,
    pub(crate) cpu: Option<u64>,
    pub(crate) result: i64,
    pub(crate) object: u64,
    pub(crate) size: Option<u64>,
    pub(crate) still: Option<bool>,
    pub(crate) data: Vec<u8>,
}

/// A static probe, with its row's number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawReached {
    pub(crate) row: u16,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
    pub(crate) time: u64,
    pub(crate) arguments: [Option<u64>; MOST_ARGUMENTS],
}

impl Record {
    /// Reads one. `None` if it is none of ours.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (kind, pid) = (reader.u32()?, reader.u32()?);
        match kind {
            CALL => call(pid, reader).map(Self::Call),
            BYTES => self::bytes(pid, reader).map(Self::Bytes),
            MARK => reached(pid, reader).map(Self::Reached),
            EXIT => Some(Self::Exit(pid)),
            FORK => Some(Self::Fork(pid, reader.u32()?)),
            EXEC => Some(Self::Exec(pid)),
            LOADED => Some(Self::Loaded(pid)),
            _ => None,
        }
    }
}

fn call(pid: u32, mut reader: Reader<'_>) -> Option<RawCall> {
    let tid = reader.u32()?;
    let (function, flags) = (reader.u16()?, reader.u16()?);
    let (stack, start, wall, cpu) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let result = reader.u64()?.cast_signed();
    let (object, size) = (reader.u64()?, reader.u64()?);
    let comm = reader.take::<16>()?;
    // Only calls that carry data have more.
    let captured = reader.u32().unwrap_or(0) as usize;
    let _unused = reader.u32();
    Some(RawCall {
        function,
        pid,
        tid,
        comm,
        stack: stack_of(stack, flags),
        start,
        wall,
        cpu: (flags & HAS_CPU != 0).then_some(cpu),
        result,
        object,
        size: (flags & HAS_SIZE != 0).then_some(size),
        still: (flags & BEGAN_INSIDE != 0).then_some(flags & STILL_INSIDE != 0),
        data: reader.0.get(..captured).unwrap_or_default().to_vec(),
    })
}

fn bytes(pid: u32, mut reader: Reader<'_>) -> Option<Bytes> {
    let tid = reader.u32()?;
    let (captured, flags) = (reader.u16()?, reader.u16()?);
    let (stack, time, length) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (descriptor, _unused) = (reader.u32()?, reader.u32()?);
    Some(Bytes {
        pid,
        tid,
        time,
        stack: stack_of(stack, flags),
        descriptor,
        direction: match flags & WRITTEN {
            0 => Direction::Read,
            _ => Direction::Written,
        },
        length,
        bytes: reader.0.get(..usize::from(captured))?.to_vec(),
    })
}

fn reached(pid: u32, mut reader: Reader<'_>) -> Option<RawReached> {
    let tid = reader.u32()?;
    let (row, known) = (reader.u16()?, reader.u16()?);
    let time = reader.u64()?;
    let mut arguments = [None; MOST_ARGUMENTS];
    for (at, argument) in arguments.iter_mut().enumerate() {
        let value = reader.u64()?;
        *argument = (known >> at & 1 == 1).then_some(value);
    }
    Some(RawReached {
        row,
        pid,
        tid,
        comm: reader.take::<16>()?,
        time,
        arguments,
    })
}

fn stack_of(place: u64, flags: u16) -> Stack {
    match flags & GOROUTINE {
        0 => Stack::Pointer(place),
        _ => Stack::Goroutine(place),
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

const CALL: u32 = 1;
const BYTES: u32 = 2;
const EXIT: u32 = 3;
const FORK: u32 = 4;
const LOADED: u32 = 5;
const MARK: u32 = 6;
const EXEC: u32 = 7;

const GOROUTINE: u16 = 1;
const HAS_CPU: u16 = 2;
const HAS_SIZE: u16 = 4;
const WRITTEN: u16 = 8;
const BEGAN_INSIDE: u16 = 32;
const STILL_INSIDE: u16 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The fields are at the places that the C structure gives them.
    #[test]
    fn a_call_is_read() {
        let mut record = words(&[
            1 | 7 << 32,
            8 | 3 << 32 | u64::from(HAS_SIZE | HAS_CPU) << 48,
            0x7ffe_0000,
            100,
            50,
            40,
            u64::MAX,
            0xabc,
            256,
        ]);
        record.extend(b"nginx\0\0\0\0\0\0\0\0\0\0\0");
        let Some(Record::Call(call)) = Record::parse(&record) else {
            panic!("no call");
        };
        assert_eq!((call.pid, call.tid, call.function), (7, 8, 3));
        assert_eq!(call.stack, Stack::Pointer(0x7ffe_0000));
        assert_eq!((call.start, call.wall, call.cpu), (100, 50, Some(40)));
        assert_eq!(
            (call.result, call.object, call.size),
            (-1, 0xabc, Some(256))
        );
        assert!(call.comm.starts_with(b"nginx\0") && call.data.is_empty());
        assert_eq!(call.still, None);
        record.extend(words(&[3]));
        record.extend(b"GETxx");
        let Some(Record::Call(call)) = Record::parse(&record) else {
            panic!("no call");
        };
        assert_eq!(call.data, b"GET");
        for end in 0..80 {
            assert_eq!(Record::parse(&record[..end]), None, "{end}");
        }
    }

    #[test]
    fn calls_tell_whether_the_handshake_goes_on_after_them() {
        let still = |flags: u16| {
            let head = [1 | 7 << 32, 8 | 3 << 32 | u64::from(flags) << 48];
            let record = words(&[&head[..], &[0; 9]].concat());
            match Record::parse(&record) {
                Some(Record::Call(call)) => call.still,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(still(BEGAN_INSIDE), Some(false));
        assert_eq!(still(BEGAN_INSIDE | STILL_INSIDE), Some(true));
        assert_eq!(still(HAS_CPU), None);
    }

    #[test]
    fn bytes_are_read() {
        let flags = u64::from(WRITTEN | GOROUTINE);
        let mut record = words(&[2 | 7 << 32, 8 | 2 << 32 | flags << 48, 9, 100, 1000, 5]);
        record.extend(b"\x16\x03rest");
        let Some(Record::Bytes(bytes)) = Record::parse(&record) else {
            panic!("no bytes");
        };
        assert_eq!(bytes.bytes, b"\x16\x03");
        assert_eq!((bytes.descriptor, bytes.length), (5, 1000));
        assert_eq!(bytes.direction, Direction::Written);
        assert_eq!(bytes.stack, Stack::Goroutine(9));
    }

    #[test]
    fn static_probes_are_read() {
        let mut record = words(&[
            6 | 7 << 32,
            8 | 3 << 32 | 0b101 << 48,
            100,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
        ]);
        record.extend(b"widelane\0\0\0\0\0\0\0\0");
        let Some(Record::Reached(reached)) = Record::parse(&record) else {
            panic!("no static probe");
        };
        assert_eq!((reached.pid, reached.tid, reached.row), (7, 8, 3));
        assert_eq!(reached.time, 100);
        assert_eq!(reached.arguments[..4], [Some(1), None, Some(3), None]);
        assert!(reached.comm.starts_with(b"widelane\0"));
        for end in 0..record.len() {
            assert_eq!(Record::parse(&record[..end]), None, "{end}");
        }
    }

    #[test]
    fn processes_are_read_and_nothing_else() {
        assert_eq!(Record::parse(&words(&[3 | 7 << 32])), Some(Record::Exit(7)));
        assert_eq!(
            Record::parse(&words(&[4 | 7 << 32, 3])),
            Some(Record::Fork(7, 3))
        );
        assert_eq!(Record::parse(&words(&[7 | 7 << 32])), Some(Record::Exec(7)));
        assert_eq!(Record::parse(&words(&[9 | 7 << 32])), None);
        assert_eq!(Record::parse(&[]), None);
    }
}
