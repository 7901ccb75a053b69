//! Row S36: files, with the names of `std::fs`, and a loop that goes on.

use crate::harness::{ECANCELED, Harness, MS, errno};
use coracle_coro::fs::{self, File};
use coracle_coro::{offload, sleep, spawn};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("coracle-fs-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn s36_files_are_written_read_and_removed(h: &Harness) {
    h.run(|| {
        let place = Place::new();
        let (one, two) = (place.join("one"), place.join("deep/er/two"));
        fs::write(&one, "ahoy")?;
        assert_eq!(fs::read(&one)?, b"ahoy");
        fs::create_dir_all(two.parent().unwrap())?;
        assert_eq!(fs::copy(&one, &two)?, 4);
        assert_eq!(fs::read_to_string(&two)?, "ahoy");
        assert_eq!(fs::metadata(&two)?.len(), 4);
        assert_eq!(fs::canonicalize(place.join("deep/../one"))?, fs::canonicalize(&one)?);
        fs::rename(&one, place.join("three"))?;
        assert_eq!(fs::metadata(&one).unwrap_err().kind(), ErrorKind::NotFound);
        fs::remove_file(place.join("three"))?;
        fs::remove_dir_all(place.join("deep"))?;
        assert_eq!(std::fs::read_dir(&place.0)?.count(), 0);
        Ok(())
    });
}

pub(crate) fn s36_open_file_reads_and_writes_anywhere(h: &Harness) {
    h.run(|| {
        let place = Place::new();
        let path = place.join("file");
        let mut file = File::create(&path)?;
        file.write_all(b"0123456789")?;
        file.write_all_at(b"ab", 2)?;
        assert_eq!(file.write_at(b"c", 4)?, 1);
        file.sync_all()?;
        file.set_len(8)?;
        assert_eq!(file.metadata()?.len(), 8);

        let mut file = File::open(&path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        assert_eq!(text, "01abc567");
        let mut three = [0; 3];
        assert_eq!(file.read_at(&mut three, 2)?, 3);
        assert_eq!(&three, b"abc");
        assert_eq!(file.read_at(&mut three, 7)?, 1);
        let short = file.read_exact_at(&mut three, 7).unwrap_err();
        assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(file.seek(SeekFrom::Start(5))?, 5);
        assert_eq!(file.read(&mut three)?, 3);
        assert_eq!(file.read(&mut three)?, 0);
        Ok(())
    });
}

pub(crate) fn s36_errors_are_those_of_the_system(h: &Harness) {
    h.run(|| {
        assert_eq!(fs::read("/nowhere").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::write("/nowhere/x", "").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(File::open("/nowhere").unwrap_err().kind(), ErrorKind::NotFound);
        let program = std::env::current_exe()?;
        assert_eq!(fs::read_to_string(program).unwrap_err().kind(), ErrorKind::InvalidData);
        let zero = fs::metadata("a\0b").unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

pub(crate) fn s36_cancelled_coroutine_changes_nothing(h: &Harness) {
    h.run(|| {
        let place = Place::new();
        let path = place.join("kept");
        fs::write(&path, "as it was")?;
        let changed = path.clone();
        let child = spawn(move || {
            [
                errno(fs::write(&changed, "")),
                errno(fs::remove_file(&changed)),
                errno(fs::read(&changed)),
            ]
        });
        child.cancel();
        assert_eq!(child.join().unwrap(), [ECANCELED; 3]);
        assert_eq!(fs::read_to_string(&path)?, "as it was");
        Ok(())
    });
}

pub(crate) fn s36_read_that_blocks_does_not_hold_up_the_loop(h: &Harness) {
    h.run(|| {
        let place = Place::new();
        let pipe = place.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status()?;
        assert!(made.success());
        let path = pipe.clone();
        let reader = spawn(move || fs::read_to_string(path)); // until somebody opens its other end
        for _ in 0..5 {
            sleep(MS)?;
        }
        assert!(!reader.is_finished());
        offload(|| std::fs::write(pipe, "through the pipe"))??;
        assert_eq!(reader.join().unwrap()?, "through the pipe");
        Ok(())
    });
}
