//! From registers and a copy of a stack to the addresses of its frames.
//!
//! It is done by the tables that the compiler leaves in every program for panics, so no frame pointers are
//! needed. They are read from the files that the program was loaded from.

use super::sample::{Registers, Sample};
use super::trace::{LIMIT_FRAMES, Trace};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ReadCache};
use std::fs::{self, File};
use std::ops::Range;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as UnwindRegisters, UnwinderAarch64 as Unwinder,
};
#[cfg(not(target_arch = "aarch64"))]
use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as UnwindRegisters, UnwinderX86_64 as Unwinder,
};

/// Walks up the stack that was copied, as far as the copy goes. That of a coroutine ends with the coroutine.
pub(super) fn unwind(sample: &Sample) -> Trace {
    let mut unwinder = Unwinder::<Vec<u8>>::new();
    for module in modules() {
        unwinder.add_module(module);
    }
    let mut read = |address: u64| read(sample, address).ok_or(());
    let begin = sample.registers.instruction as u64;
    let mut cache = Cache::new();
    let mut frames =
        unwinder.iter_frames(begin, registers(sample.registers), &mut cache, &mut read);
    let mut addresses = Vec::new();
    while addresses.len() < LIMIT_FRAMES
        && let Ok(Some(frame)) = frames.next()
    {
        addresses.push(match frame {
            // The others are where a frame goes on, which is behind where it is.
            FrameAddress::InstructionPointer(address) => address as usize + 1,
            FrameAddress::ReturnAddress(address) => address.get() as usize,
        });
    }
    Trace::new(addresses)
}

/// A word of the stack.
fn read(sample: &Sample, address: u64) -> Option<u64> {
    let at = (address as usize).checked_sub(sample.stack_start)?;
    let word = sample.stack.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().expect("it has eight bytes")))
}

#[cfg(not(target_arch = "aarch64"))]
fn registers(from: Registers) -> UnwindRegisters {
    UnwindRegisters::new(from.instruction as u64, from.stack as u64, from.frame as u64)
}

#[cfg(target_arch = "aarch64")]
fn registers(from: Registers) -> UnwindRegisters {
    UnwindRegisters::new(from.link as u64, from.stack as u64, from.frame as u64)
}

/// The program and its libraries. One that cannot be read is left out, and a walk ends there.
fn modules() -> Vec<Module<Vec<u8>>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut mapped: Vec<(&str, Range<u64>, u64)> = Vec::new();
    for (path, range, offset) in maps.lines().filter_map(mapping) {
        match mapped.iter_mut().find(|(known, ..)| *known == path) {
            Some((_, whole, _)) => whole.end = whole.end.max(range.end),
            None if offset == 0 => mapped.push((path, range.clone(), range.start)),
            None => {}
        }
    }
    mapped.into_iter().filter_map(|(path, range, start)| module(path, range, start)).collect()
}

/// What a line of /proc/self/maps says of a file: `55d0c000-55d2e000 r-xp 00002000 08:01 1234  /bin/app`
fn mapping(line: &str) -> Option<(&str, Range<u64>, u64)> {
    let path = &line[line.find('/')?..];
    let mut fields = line.split(' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((path, number(start)?..number(end)?, number(offset)?))
}

fn module(path: &str, range: Range<u64>, start: u64) -> Option<Module<Vec<u8>>> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let first = file.segments().next()?.address();
    let place = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let data = |name: &str| Some(file.section_by_name(name)?.data().ok()?.to_vec());
    let sections = ExplicitModuleSectionInfo {
        text_svma: place(".text"),
        got_svma: place(".got"),
        eh_frame_svma: place(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: place(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..ExplicitModuleSectionInfo::default()
    };
    sections.eh_frame.as_ref()?;
    let bias = start.wrapping_sub(first & !0xfff);
    Some(Module::new(path.to_owned(), range, bias, sections))
}

#[cfg(test)]
mod tests {
    use super::mapping;

    #[test]
    fn s43_memory_map_is_read() {
        let line = "55d0c000-55d2e000 r-xp 00002000 08:01 1234   /opt/my app/bin";
        assert_eq!(mapping(line), Some(("/opt/my app/bin", 0x55d0_c000..0x55d2_e000, 0x2000)));
        assert_eq!(mapping("7ff0-7ff8 rw-p 00000000 00:00 0 [stack]"), None);
        assert_eq!(mapping("7ff0-7ff8 rw-p 00000000 00:00 0"), None);
    }
}
