{#- A test of a model: fails if the table has more than `max_files` data files below `below_bytes`. -#}
{% test few_small_files(model, max_files=20, below_bytes=33554432) %}
select count(*) as small_files
from {{ model }}.files
where content = 0 and file_size_in_bytes < {{ below_bytes }}
having count(*) > {{ max_files }}
{% endtest %}
