-- One table of a drive: speed, steering and the car's own bus (CAN), joined by time.
--
--   penstock demo --data DRIVE --tables examples/drive.sql
--   penstock pipeline ARCHIVE --out TABLES --tables examples/drive.sql
--
-- Streams are named by their channels, in backticks. `t` is the car's clock in seconds.

-- What the bus says, in physical units. Addresses and scales are those of the car's make.
create temporary view can_values as
select
  t,
  case hex(address) when 'B4' then (high * 256 + low) * 0.01D / 3.6D end as speed_m_s,
  case hex(address) when '25' then angle * 1.5D + fraction * 0.1D end as steering_deg,
  case hex(address) when '1C4' then rpm * 0.78125D end as engine_rpm,
  case hex(address) when '2C1' then pedal * 0.5D end as pedal_percent
from (
  select
    t, address,
    conv(hex(substring(data, 6, 1)), 16, 10)::int as high,
    conv(hex(substring(data, 7, 1)), 16, 10)::int as low,
    -- 12 bits with a sign, and 4 bits with a sign for tenths of a degree
    (conv(hex(substring(data, 1, 2)), 16, 10)::int + 2048) % 4096 - 2048 as angle,
    (conv(hex(substring(data, 5, 1)), 16, 10)::int div 16 + 8) % 16 - 8 as fraction,
    conv(hex(substring(data, 1, 2)), 16, 10)::int as rpm,
    conv(hex(substring(data, 7, 1)), 16, 10)::int as pedal
  from `log:drive.can`
  where bus = 0 and hex(address) in ('B4', '25', '1C4', '2C1')
);

-- As-of join: all streams in one order of time; then each speed takes the last value of each other column.
create table drive comment 'Speed, steering and CAN at each message of the speed sensor' as
with together as (
  select t, value[0] as speed_m_s, null as steering_deg,
         null as can_speed_m_s, null as can_steering_deg, null as engine_rpm, null as pedal_percent
  from `log:drive.speed`
  union all
  select t, null, value, null, null, null, null from `log:drive.steering_angle`
  union all
  select t, null, null, speed_m_s, steering_deg, engine_rpm, pedal_percent from can_values
), known as (
  select
    t, speed_m_s,
    last_value(steering_deg) ignore nulls over so_far as steering_deg,
    last_value(can_speed_m_s) ignore nulls over so_far as can_speed_m_s,
    last_value(can_steering_deg) ignore nulls over so_far as can_steering_deg,
    last_value(engine_rpm) ignore nulls over so_far as engine_rpm,
    last_value(pedal_percent) ignore nulls over so_far as pedal_percent
  from together
  window so_far as (order by t, speed_m_s nulls first rows between unbounded preceding and current row)
)
select
  t,
  t - min(t) over () as time_s,
  speed_m_s, can_speed_m_s, steering_deg, can_steering_deg, engine_rpm, pedal_percent
from known
where speed_m_s is not null;

-- How often each kind of bus message came, and how evenly.
create table can_rates as
select bus, address, hex(address) as address_hex, count(*) as messages,
       count(*) / (max(t) - min(t)) as per_second, max(t - before) as longest_gap_s
from (select bus, address, t, lag(t) over (partition by bus, address order by t) as before from `log:drive.can`)
group by bus, address
having count(*) > 1
order by messages desc;
