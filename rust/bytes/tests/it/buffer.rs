//! Buffers are zeroed, aligned, and refuse politely.

use lazyparam_bytes::{Buffer, OutOfMemory};

const LENGTHS: [usize; 9] = [
    1,
    63,
    64,
    4097,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    2 << 20,
    (5 << 20) + 3,
];

#[test]
fn buffers_are_zeroed_and_aligned_at_every_size() {
    for len in LENGTHS {
        let buffer = Buffer::zeroed(len).unwrap();
        assert_eq!(buffer.len(), len);
        assert_eq!(buffer.as_slice().len(), len);
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn every_byte_can_be_written_and_read_back() {
    for len in LENGTHS {
        let mut buffer = Buffer::zeroed(len).unwrap();
        for (index, byte) in buffer.as_mut_slice().iter_mut().enumerate() {
            *byte = index as u8;
        }
        assert!((0..len).all(|index| buffer.as_slice()[index] == index as u8));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn large_buffers_begin_at_a_huge_page() {
    let buffer = Buffer::zeroed(3 << 20).unwrap();
    assert_eq!(buffer.as_ptr() as usize % (2 << 20), 0);
}

#[test]
fn an_empty_buffer_is_aligned_too() {
    let mut buffer = Buffer::zeroed(0).unwrap();
    assert!(buffer.is_empty());
    assert!(buffer.as_mut_slice().is_empty());
    assert_eq!(buffer.as_ptr() as usize % 64, 0);
}

#[test]
fn more_than_there_is_is_refused_without_aborting() {
    for bytes in [
        usize::MAX,
        isize::MAX as usize,
        isize::MAX as usize - 4096,
        1 << 60,
    ] {
        assert_eq!(Buffer::zeroed(bytes).unwrap_err(), OutOfMemory { bytes });
    }
}

#[test]
fn a_buffer_can_be_dropped_by_another_thread() {
    for len in [100, 4 << 20] {
        let buffer = Buffer::zeroed(len).unwrap();
        std::thread::spawn(move || drop(buffer)).join().unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn dropped_buffers_give_their_address_space_back() {
    // Bytes of anonymous maps; other tests map files of any length meanwhile.
    let mapped = || -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let anonymous = maps
            .lines()
            .filter(|line| line.split_whitespace().count() == 5);
        let len = |line: &str| {
            let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let address = |hex| usize::from_str_radix(hex, 16).unwrap();
            address(end) - address(begin)
        };
        anonymous.map(len).sum()
    };
    let before = mapped();
    for _ in 0..200 {
        drop(Buffer::zeroed(64 << 20).unwrap());
    }
    // Other tests allocate meanwhile; 200 leaked buffers would be 12 GiB.
    assert!(mapped() < before + (4 << 30));
}
