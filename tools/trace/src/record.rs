//! The records that the programs in the kernel write: the structures of `tools/bpf/programs/trace.bpf.c`.

use std::sync::Arc;

use crate::event::{Bytes, Call, Direction, Event, Reached, Stack};
use crate::functions::{Function, Returns};
use crate::marks::{MOST_ARGUMENTS, Mark};
use crate::reader::Reader;

/// A record of the ring buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An event for the views.
    Event(Event),
    /// Change of a process, by the number of the process.
    Changed(u32, Change),
}

/// Change of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A process that was forked.
    Forked { parent: u32 },
    /// A process that has executed another program.
    Executed,
    /// A process that has loaded a library, or unloaded one.
    Loaded,
    /// A process that has ended.
    Ended,
}

/// Rows of the kernel's tables, in their order.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) functions: Vec<Arc<Function>>,
    pub(crate) marks: Vec<Arc<Mark>>,
}

impl Record {
    /// Reads one. `None` if it is none of ours.
    pub(crate) fn parse(bytes: &[u8], rows: &Rows) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (kind, pid) = (reader.u32()?, reader.u32()?);
        Some(match kind {
            CALL => Self::Event(Event::Call(call(pid, reader, &rows.functions)?)),
            BYTES => Self::Event(Event::Bytes(self::bytes(pid, reader)?)),
            MARK => Self::Event(Event::Reached(reached(pid, reader, &rows.marks)?)),
            EXIT => Self::Changed(pid, Change::Ended),
            FORK => {
                let parent = reader.u32()?;
                Self::Changed(pid, Change::Forked { parent })
            }
            EXEC => Self::Changed(pid, Change::Executed),
            LOADED => Self::Changed(pid, Change::Loaded),
            _ => return None,
        })
    }
}

fn call(pid: u32, mut reader: Reader<'_>, functions: &[Arc<Function>]) -> Option<Call> {
    let tid = reader.u32()?;
    let (function, flags) = (reader.u16()?, reader.u16()?);
    let function = functions.get(usize::from(function))?;
    let (stack, start, wall, cpu) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let result = reader.u64()?.cast_signed();
    let (object, size) = (reader.u64()?, reader.u64()?);
    let comm = reader.take::<16>()?;
    // Only calls that carry data have more.
    let captured = reader.u32().unwrap_or(0) as usize;
    let _unused = reader.u32();
    Some(Call {
        function: Arc::clone(function),
        pid,
        tid,
        comm,
        stack: stack_of(stack, flags),
        start,
        wall,
        cpu: (flags & HAS_CPU != 0).then_some(cpu),
        result: match function.returns {
            // The upper half of the register is undefined.
            Returns::One | Returns::Zero => i64::from(result as i32),
            Returns::Any | Returns::Pointer | Returns::GoError(_) => result,
        },
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

fn reached(pid: u32, mut reader: Reader<'_>, marks: &[Arc<Mark>]) -> Option<Reached> {
    let tid = reader.u32()?;
    let (row, known) = (reader.u16()?, reader.u16()?);
    let time = reader.u64()?;
    let mut arguments = [None; MOST_ARGUMENTS];
    for (at, argument) in arguments.iter_mut().enumerate() {
        let value = reader.u64()?;
        *argument = (known >> at & 1 == 1).then_some(value);
    }
    Some(Reached {
        mark: Arc::clone(marks.get(usize::from(row))?),
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
    use crate::table::Table;

    /// Some functions, and one of our static probes, the fourth of its kind.
    fn rows() -> Rows {
        let table = Table::builtin();
        let mark = table.mark(b"widelane", b"job_done").expect("a row of the table");
        Rows {
            functions: table.functions()[..4].to_vec(),
            marks: vec![Arc::clone(mark); 4],
        }
    }

    fn parse(bytes: &[u8]) -> Option<Record> {
        Record::parse(bytes, &rows())
    }

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
        let Some(Record::Event(Event::Call(call))) = parse(&record) else {
            panic!("no call");
        };
        assert_eq!((call.pid, call.tid), (7, 8));
        assert_eq!(call.function, rows().functions[3]);
        assert_eq!(call.stack, Stack::Pointer(0x7ffe_0000));
        assert_eq!((call.start, call.wall, call.cpu), (100, 50, Some(40)));
        assert_eq!((call.result, call.object, call.size), (-1, 0xabc, Some(256)));
        assert!(call.comm.starts_with(b"nginx\0") && call.data.is_empty());
        assert_eq!(call.still, None);
        record.extend(words(&[3]));
        record.extend(b"GETxx");
        let Some(Record::Event(Event::Call(call))) = parse(&record) else {
            panic!("no call");
        };
        assert_eq!(call.data, b"GET");
        for end in 0..80 {
            assert_eq!(parse(&record[..end]), None, "{end}");
        }
    }

    #[test]
    fn calls_report_whether_the_handshake_goes_on_after_them() {
        let still = |flags: u16| {
            let head = [1 | 7 << 32, 8 | 3 << 32 | u64::from(flags) << 48];
            let record = words(&[&head[..], &[0; 9]].concat());
            match parse(&record) {
                Some(Record::Event(Event::Call(call))) => call.still,
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
        let Some(Record::Event(Event::Bytes(bytes))) = parse(&record) else {
            panic!("no bytes");
        };
        assert_eq!(bytes.bytes, b"\x16\x03");
        assert_eq!((bytes.descriptor, bytes.length), (5, 1000));
        assert_eq!(bytes.direction, Direction::Written);
        assert_eq!(bytes.stack, Stack::Goroutine(9));
    }

    #[test]
    fn static_probes_are_read() {
        let mut record = words(&[6 | 7 << 32, 8 | 3 << 32 | 0b101 << 48, 100, 1, 2, 3, 4, 5, 6, 7, 8]);
        record.extend(b"widelane\0\0\0\0\0\0\0\0");
        let Some(Record::Event(Event::Reached(reached))) = parse(&record) else {
            panic!("no static probe");
        };
        assert_eq!((reached.pid, reached.tid), (7, 8));
        assert_eq!(reached.mark.name, "job_done");
        assert_eq!(reached.time, 100);
        assert_eq!(reached.arguments[..4], [Some(1), None, Some(3), None]);
        assert!(reached.comm.starts_with(b"widelane\0"));
        for end in 0..record.len() {
            assert_eq!(parse(&record[..end]), None, "{end}");
        }
    }

    #[test]
    fn processes_are_read_and_nothing_else() {
        let parse = |record: &[u64]| parse(&words(record));
        let ended = Record::Changed(7, Change::Ended);
        assert_eq!(parse(&[3 | 7 << 32]), Some(ended));
        let forked = Record::Changed(7, Change::Forked { parent: 3 });
        assert_eq!(parse(&[4 | 7 << 32, 3]), Some(forked));
        let executed = Record::Changed(7, Change::Executed);
        assert_eq!(parse(&[7 | 7 << 32]), Some(executed));
        assert_eq!(parse(&[9 | 7 << 32]), None);
        assert_eq!(parse(&[]), None);
        // A row that the tables do not have.
        let call = [&[1 | 7 << 32, 8 | 4 << 32][..], &[0; 9]].concat();
        assert_eq!(parse(&call), None);
    }

    /// A function that returns -1 as an `int` may leave anything in the upper half.
    #[test]
    fn results_have_the_width_that_the_table_says() {
        let result = |returns| {
            let mut rows = rows();
            Arc::make_mut(&mut rows.functions[0]).returns = returns;
            let record = [&[1 | 7 << 32, 8, 0, 0, 0, 0, 0xffff_ffff][..], &[0; 4]].concat();
            match Record::parse(&words(&record), &rows) {
                Some(Record::Event(Event::Call(call))) => call.result,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(result(Returns::One), -1);
        assert_eq!(result(Returns::Zero), -1);
        assert_eq!(result(Returns::Any), 0xffff_ffff);
        assert_eq!(result(Returns::GoError(0)), 0xffff_ffff);
    }
}
