//! A moment as a date of the calendar, in UTC.

/// The names of months, as logs and headers have them.
pub(crate) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A second of a day of the Gregorian calendar, which counts before its time, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) year: i64,
    /// From 1 on.
    pub(crate) month: u8,
    pub(crate) day: u8,
    pub(crate) hour: u8,
    pub(crate) minute: u8,
    pub(crate) second: u8,
}

impl Moment {
    /// So many seconds after the beginning of 1970.
    ///
    /// Years are counted from March on, so that a leap day is the last of its year (Howard Hinnant,
    /// "chrono-compatible low-level date algorithms").
    pub(crate) fn of(seconds: i64) -> Moment {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let days = days + 719_468; // since 1 March of the year 0
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097)); // 400 years
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153; // from March on: 31, 30, 31, 30, 31 days, again and again
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Moment {
            year: era * 400 + year + i64::from(month <= 2),
            month: month as u8,
            day: day as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
        }
    }

    /// `Nov`.
    pub(crate) fn month_name(&self) -> &'static str {
        MONTHS[usize::from(self.month) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    proptest! {
        /// The date that HTTP has for the same second, written by somebody else.
        #[test]
        fn j14_dates_are_those_of_the_calendar(seconds in 0_u32..=u32::MAX, eras in 0_u64..58) {
            let seconds = u64::from(seconds) + eras * (1 << 32);
            let moment = Moment::of(seconds as i64);
            let ours = format!(
                "{:02} {} {:04} {:02}:{:02}:{:02} GMT",
                moment.day, moment.month_name(), moment.year, moment.hour, moment.minute, moment.second
            );
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            prop_assert_eq!(&httpdate::fmt_http_date(time)[5..], ours);
        }
    }

    #[test]
    fn j14_dates_before_1970_and_at_the_ends_of_time() {
        let date = |seconds| {
            let Moment { year, month, day, hour, minute, second } = Moment::of(seconds);
            (year, month, day, hour, minute, second)
        };
        assert_eq!(date(-1), (1969, 12, 31, 23, 59, 59));
        assert_eq!(date(951_782_400), (2000, 2, 29, 0, 0, 0));
        assert_eq!(date(4_107_542_400), (2100, 3, 1, 0, 0, 0));
        assert_eq!(date(i64::MAX).0, 292_277_026_596);
        assert_eq!(date(i64::MIN).0, -292_277_022_657);
    }
}
