{{ config(materialized="table") }}
select day, count(*) as orders, sum(amount) as amount
from {{ source("shop", "orders") }}
group by day
